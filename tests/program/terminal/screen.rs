//! The display at a terminal: the wait on a line that is erased, dimmed reasoning, and no escape sequences from the model.

use support::net::stub;
use support::service::{Pool, wait_for};
use support::terminal::Terminal;

use super::{piece, reasoning, streaming};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// The texts of the status line, each preceded by erasing the line.
fn status_lines(shown: &str) -> Vec<String> {
    let parts = shown.split("\r\x1b[K").skip(1);
    let text = |part: &str| {
        part.split(['\r', '\n', '\x1b'])
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    parts.map(text).filter(|part| !part.is_empty()).collect()
}

#[test]
fn a_wait_is_shown_on_one_line_that_fits_a_narrow_terminal_and_is_erased() {
    let pool = Pool::with_models(&[stub("m", &["--ready-after-ms", "2500"])], "");
    let folder = folder();
    let env = [("MODEL_POOL_SERVER", pool.address())];
    for (words, columns) in [(&["run", "m", "Hello", "--verbose"][..], 20_u16)] {
        let terminal = Terminal::start(folder.path(), words, &env, columns);
        let (status, shown) = terminal.end();
        assert_eq!(status, Some(0), "{shown:?}");
        let lines = status_lines(&shown);
        let waits: Vec<&String> = lines
            .iter()
            .filter(|line| line.contains('…') || line.contains("so far"))
            .collect();
        assert!(!waits.is_empty(), "{shown:?}");
        for line in waits {
            assert!(line.chars().count() < usize::from(columns), "{line:?}");
        }
        let response = shown
            .split("\r\x1b[K")
            .find(|line| line.starts_with("Hello"));
        let response = response.unwrap_or_else(|| panic!("the line was not erased: {shown:?}"));
        assert!(
            response.contains("Hello from m and goodbye\r\n"),
            "{shown:?}"
        );
        assert!(
            shown.contains("for the model"),
            "the wait is shown: {shown:?}"
        );
    }
}

#[test]
fn the_stage_of_a_load_is_shown_while_it_lasts() {
    let pool = Pool::with_models(&[stub("m", &["--ready-after-ms", "3000"])], "");
    let folder = folder();
    let env = [("MODEL_POOL_SERVER", pool.address())];
    let terminal = Terminal::start(folder.path(), &["run", "m", "Hello"], &env, 80);
    wait_for("the wait to be shown", || {
        let lines = status_lines(&terminal.shown());
        lines
            .iter()
            .any(|line| line.contains(" so far") && !line.contains("for the answer"))
    });
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn reasoning_is_dimmed_and_the_response_is_not() {
    let server = streaming(&[reasoning("let me "), reasoning("think"), piece("\n\nfour")]);
    let folder = folder();
    let words = ["run", "m", "2+2?", "--server", &server.url("")];
    let (status, shown) = Terminal::start(folder.path(), &words, &[], 80).end();
    assert_eq!(status, Some(0), "{shown:?}");
    assert!(
        shown.contains("\x1b[2mlet me think\x1b[0m\r\n\r\nfour\r\n"),
        "{shown:?}"
    );
    let env = [("NO_COLOR", "1")];
    let (_, shown) = Terminal::start(folder.path(), &words, &env, 80).end();
    assert!(
        shown.contains("Thinking…\r\nlet me think\r\n…done thinking.\r\n\r\nfour"),
        "{shown:?}"
    );
    assert!(!shown.contains("\x1b[2m"), "{shown:?}");
}

#[test]
fn escape_sequences_of_a_model_are_shown_and_not_carried_out() {
    let server = streaming(&[
        reasoning("\x1b[5mhm"),
        piece("\x1b]0;pwned\x07"),
        piece("\x1b[2Jgone\x08\x08"),
    ]);
    let folder = folder();
    let words = ["run", "m", "Hello", "--server", &server.url("")];
    let (_, shown) = Terminal::start(folder.path(), &words, &[], 80).end();
    assert!(shown.contains("␛]0;pwned␇␛[2Jgone␈␈"), "{shown:?}");
    for raw in ["\x1b]", "\x1b[2J", "\x1b[5m", "\x08", "\x07"] {
        assert!(!shown.contains(raw), "{raw:?} in {shown:?}");
    }
}
