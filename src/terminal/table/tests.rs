//! Tests of `table.rs`.

use super::*;

const THREE: [Column; 3] = [column("NAME"), column("N").right(), column("REST")];

#[test]
fn columns_are_aligned_without_trailing_spaces() {
    let rows = vec![row!["a", 10_u32, "x"], row!["long", 5_u32, ""]];
    let text = table(&THREE, rows, "nothing", Style::PLAIN);
    assert_eq!(text, "NAME   N  REST\na     10  x\nlong   5\n");
}

#[test]
fn an_empty_table_is_printed_as_a_sentence() {
    assert_eq!(
        table(&THREE, [], "No requests are waiting.", Style::PLAIN),
        "No requests are waiting.\n"
    );
}

#[test]
fn colours_do_not_disturb_the_alignment() {
    let rows = vec![
        row![Cell::tinted("ab", Some(Tint::Good)), "c"],
        row!["abcd", None::<&str>],
    ];
    let colour = Style {
        colour: true,
        ..Style::PLAIN
    };
    let text = table(&[column("H"), column("I")], rows, "", colour);
    assert_eq!(clean(&text), "H     I\nab    c\nabcd  -\n");
}

#[test]
fn a_line_break_in_a_name_does_not_break_the_table() {
    let rows = vec![row!["a\nb\x1b[2J"]];
    assert_eq!(table(&[column("H")], rows, "", Style::PLAIN), "H\na b\n");
}

#[test]
fn wide_characters_are_aligned_by_their_display_width() {
    let rows = vec![row!["模型", "x"], row!["e\u{301}", "y"]];
    assert_eq!(
        table(&[column("H"), column("I")], rows, "", Style::PLAIN),
        "H     I\n模型  x\ne\u{301}     y\n"
    );
}

const GIVING: [Column; 4] = [
    column("NAME").shortens_to(6),
    column("AGE").leaves(1),
    column("SIZE").leaves(2),
    column("WHY").goes_below(),
];

fn row() -> Vec<Row> {
    vec![row![
        "a-long-name-of-it",
        "10 min ago",
        "12 GiB",
        "because of this"
    ]]
}

#[test]
fn long_texts_move_below_then_names_are_shortened_then_columns_are_dropped() {
    let at = |columns: usize| table(&GIVING, row(), "", Style::terminal(columns));
    assert_eq!(
        at(60),
        "NAME               AGE         SIZE    WHY\n\
             a-long-name-of-it  10 min ago  12 GiB  because of this\n"
    );
    assert_eq!(
        at(40),
        "NAME               AGE         SIZE\n\
             a-long-name-of-it  10 min ago  12 GiB\n    because of this\n"
    );
    assert_eq!(
        at(32),
        "NAME          AGE         SIZE\n\
             a-long…of-it  10 min ago  12 GiB\n    because of this\n"
    );
    assert_eq!(
        at(22),
        "NAME            SIZE\n\
             a-long-…-of-it  12 GiB\n    because of this\n"
    );
}

#[test]
fn without_a_terminal_or_with_wide_nothing_is_shortened() {
    let wide = Style {
        wide: true,
        ..Style::terminal(20)
    };
    for style in [Style::PLAIN, wide] {
        let text = table(&GIVING, row(), "", style);
        assert!(
            text.ends_with("  10 min ago  12 GiB  because of this\n"),
            "{text}"
        );
    }
}

#[test]
fn required_columns_are_truncated_if_nothing_else_can_shrink() {
    let rows = [row!["x".repeat(50), "y".repeat(50)]];
    let text = table(&[column("A"), column("B")], rows, "", Style::terminal(24));
    assert!(text.lines().all(|line| width(line) <= 24), "{text}");
}

#[test]
fn facts_without_a_value_are_left_out() {
    let pairs = [
        ("a", Some("1\n2".to_owned())),
        ("long", None),
        ("bb", Some("3".to_owned())),
    ];
    let text = facts(&pairs, Style::PLAIN);
    assert_eq!(text, "  a   1\n      2\n  bb  3\n");
}

#[test]
fn a_long_fact_wraps_after_its_name_or_below_it() {
    let pairs = [(
        "reason",
        Some("one two three four five six seven".to_owned()),
    )];
    assert_eq!(
        facts(&pairs, Style::terminal(40)),
        "  reason  one two three four five six\n          seven\n"
    );
    assert_eq!(
        facts(&pairs, Style::terminal(30)),
        "  reason\n      one two three four five\n      six seven\n"
    );
}
