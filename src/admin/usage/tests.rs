//! Tests of reports of device time: the groups of a report, its rows, and its month.

use super::*;
use config::GroupSection;
use store::LedgerAmount;

fn read(text: &str) -> Result<Option<Month>, Failure> {
    let json = serde_json::json!({ "month": text }).to_string();
    read_month(&mut Fields::parse(json.as_bytes()).unwrap())
}

#[test]
fn a_path_is_below_itself_and_its_groups_but_not_below_a_group_of_a_similar_name() {
    for (path, top, is) in [
        ("physics/lab", "physics/lab", true),
        ("physics/lab/team", "physics/lab", true),
        ("physics/labs", "physics/lab", false),
        ("physics", "physics/lab", false),
        ("x/physics/lab", "physics/lab", false),
        ("lab", "physics/lab", false),
        ("", "physics", false),
    ] {
        assert_eq!(is_below(path, top), is, "{path} {top}");
    }
}

#[test]
fn a_group_without_rows_is_known_by_the_configuration_and_an_earlier_one_by_its_rows() {
    let group = |parent: &str| GroupSection {
        parent: Some(parent.to_owned()),
        ..GroupSection::default()
    };
    let section = GroupsSection::from([
        ("physics".to_owned(), GroupSection::default()),
        ("lab".to_owned(), group("physics")),
    ]);
    let earlier = LedgerSum {
        device: String::new(),
        period: 0,
        model: "a".to_owned(),
        payer: "course/k3".to_owned(),
        state: "used".to_owned(),
        amount: LedgerAmount::default(),
    };
    let rows = [earlier];
    for wanted in ["physics", "lab", "physics/lab", "course"] {
        check_group(&section, &rows, wanted).unwrap();
    }
    let error = check_group(&section, &rows, "labs").expect_err("unknown");
    let message = error.body.error.message;
    assert!(message.contains("course, lab, physics"), "{message}");
    let error = check_group(&GroupsSection::new(), &[], "lab").expect_err("unknown");
    let message = error.body.error.message;
    assert!(message.contains("has no groups"), "{message}");
}

#[test]
fn a_report_with_too_many_rows_names_the_filters() {
    check_rows(JSON_ROWS_MAX, Format::Json).unwrap();
    check_rows(JSON_ROWS_MAX + 1, Format::Csv).unwrap();
    let error = check_rows(JSON_ROWS_MAX + 1, Format::Json).expect_err("too many");
    let message = error.body.error.message;
    for word in ["20001", "20000", "model", "group", "of", "format=csv"] {
        assert!(message.contains(word), "{word}: {message}");
    }
    check_rows(CSV_ROWS_MAX + 1, Format::Csv).expect_err("too many");
}

#[test]
fn a_month_is_a_year_and_a_month() {
    assert_eq!(read("2026-02").unwrap(), "2026-02".parse().ok());
    let error = read("2026-13").expect_err("no month");
    assert_eq!(error.body.error.param.as_deref(), Some("month"));
}
