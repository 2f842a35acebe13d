//! `admin-client top`, `why` and `chat` at a real terminal, against a real pool.

use std::path::Path;
use std::process::{Command, Stdio};

use support::net::stub;
use support::service::Pool;
use support::terminal::Terminal;

/// Terminal modes that the program failed to reset: the alternate screen, the mouse, a hidden cursor.
const RESTORED: [&str; 3] = ["\x1b[?1049l", "\x1b[?1000l", "\x1b[?25h"];

fn at_terminal(pool: &Pool, words: &[&str], size: (u16, u16)) -> Terminal {
    let program = support::profile_dir().join("admin-client");
    let key = pool.admin_key();
    let env = [
        ("MODEL_POOL_SERVER", pool.address()),
        ("MODEL_POOL_ADMIN_KEY", key.as_str()),
    ];
    Terminal::new(&program, pool.folder(), words, &env, size)
}

fn piped(pool: &Pool, words: &[&str]) -> String {
    let output = Command::new(support::profile_dir().join("admin-client"))
        .args(words)
        .env("MODEL_POOL_SERVER", pool.address())
        .env("MODEL_POOL_ADMIN_KEY", pool.admin_key())
        .stdin(Stdio::null())
        .output()
        .expect("admin-client is built with the tests");
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The line in the models pane that begins with the name.
fn row<'a>(screen: &'a str, model: &str) -> &'a str {
    let begin = format!("{model} ");
    let is_row = |line: &&str| line.trim_start_matches(['│', ' ']).starts_with(&begin);
    screen.lines().find(is_row).unwrap_or_default()
}

#[test]
fn a_load_started_with_a_keystroke_is_followed_until_ready_and_can_be_unloaded() {
    let models = [
        stub("other", &[]),
        stub("slow", &["--ready-after-ms", "1500"]),
    ];
    let pool = Pool::with_models(&models, "");
    for size in [(80, 24), (200, 50)] {
        let mut top = at_terminal(&pool, &["top"], size);
        top.wait_for_screen("both models", |screen| {
            row(screen, "slow").contains("cold") && row(screen, "other").contains("cold")
        });
        top.keys("jl");
        let plan = top.wait_for_screen("the plan", |screen| {
            screen.contains("Press Enter to load it.")
        });
        assert!(plan.contains("Load slow?"), "{plan}");
        top.keys("\r");
        top.wait_for_screen("the load", |screen| {
            row(screen, "slow").contains("of about") || row(screen, "slow").contains("loading")
        });
        let ready = top.wait_for_screen("it ready", |screen| row(screen, "slow").contains("ready"));
        assert!(ready.contains("1 of 2 ready"), "{ready}");
        top.keys("u");
        top.wait_for_screen("what leaves", |screen| {
            screen.contains("1 replica will be unloaded")
        });
        top.keys("\r");
        top.wait_for_screen("it cold", |screen| row(screen, "slow").contains("cold"));
        // The newest event has a stored decision.
        top.keys("4w");
        // Escape followed by another key in one read is Alt and that key.
        top.wait_for_screen("the decision", |screen| {
            screen.contains("(event ") && screen.contains("Esc close")
        });
        top.keys("\x1b");
        top.wait_for_screen("the panes", |screen| !screen.contains("Esc close"));
        top.keys("q");
        let (status, shown) = top.end();
        assert_eq!(status, Some(0), "{shown:?}");
    }
}

#[test]
fn the_terminal_is_restored_after_control_c_and_after_signals() {
    let pool = Pool::with_models(&[stub("m", &[])], "");
    for signal in ["", "TERM", "HUP", "INT"] {
        let mut top = at_terminal(&pool, &["top"], (80, 24));
        let before = top.settings();
        top.wait_for_screen("the models", |screen| screen.contains("2 Models"));
        assert_ne!(top.settings(), before, "single keys are read without echo");
        match signal {
            "" => top.keys("\x03"),
            signal => {
                let pid = top.pid().to_string();
                let sent = Command::new("kill")
                    .args([&format!("-{signal}"), &pid])
                    .status();
                assert!(sent.expect("kill runs").success());
            }
        }
        top.wait_for_screen("nothing", |screen| screen.trim().is_empty());
        assert_eq!(top.settings(), before, "{signal}");
        let (status, shown) = top.end();
        assert_eq!(status, Some(0), "{signal}: {shown:?}");
        for sequence in RESTORED {
            assert!(
                shown.contains(sequence),
                "{signal}: {sequence:?} in {shown:?}"
            );
        }
    }
}

#[test]
fn a_lost_connection_is_shown_and_the_screen_recovers_automatically() {
    let mut pool = Pool::with_models(&[stub("m", &[])], "");
    let address = pool.address().to_owned();
    pool.set_env("MODEL_POOL__SERVER__LISTEN", &address);
    let mut top = at_terminal(&pool, &["top"], (100, 30));
    top.wait_for_screen("the models", |screen| screen.contains("● live"));
    pool.kill();
    let lost = top.wait_for_screen("the loss", |screen| screen.contains("no connection for"));
    assert!(
        row(&lost, "m").contains("cold"),
        "the last picture stays: {lost}"
    );
    pool.restart();
    top.wait_for_screen("the connection", |screen| {
        screen.contains("● live") && screen.contains("The connection is back.")
    });
    top.keys("q");
    assert_eq!(top.end().0, Some(0));
}

#[test]
fn escape_sequences_in_engine_output_are_not_printed() {
    let (name, file) = stub("m", &["--stderr", "LINE"]);
    // YAML escapes that clear the screen, set the title, and set a colour.
    let file = file.replace("LINE", r"\e[2J\e]0;taken\adanger\x9b31m");
    let pool = Pool::with_models(&[(name, file)], "");
    piped(&pool, &["load", "m"]);
    let mut top = at_terminal(&pool, &["top"], (80, 24));
    top.wait_for_screen("the model", |screen| row(screen, "m").contains("ready"));
    top.keys("L");
    top.wait_for_screen("the log", |screen| screen.contains("danger"));
    top.keys("\x03");
    let (_, shown) = top.end();
    for raw in ["\x1b]0;", "\x07", "\u{9b}"] {
        assert!(!shown.contains(raw), "{raw:?}");
    }
}

#[test]
fn a_single_frame_is_printed_to_a_pipe_without_escape_sequences() {
    let pool = Pool::with_models(&[stub("m", &[])], "");
    let picture = piped(&pool, &["top", "--once"]);
    for part in ["● live", "1 Devices", "2 Models 1", "3 Queue", "4 Events"] {
        assert!(picture.contains(part), "{part}: {picture}");
    }
    assert!(!picture.contains('\x1b'), "{picture:?}");
    let top = at_terminal(&pool, &["top", "--once"], (80, 24));
    let (status, shown) = top.end();
    assert_eq!(status, Some(0));
    assert!(
        shown.lines().count() <= 24 && shown.contains("2 Models 1"),
        "{shown}"
    );
}

#[test]
fn a_wrong_address_or_key_is_reported_before_the_screen_is_switched() {
    let pool = Pool::with_models(&[stub("m", &[])], "");
    let program = support::profile_dir().join("admin-client");
    let folder: &Path = pool.folder();
    let cases = [
        ("http://127.0.0.1:1", "mp-x", 3, "cannot reach the server"),
        (pool.address(), "mp-wrong", 1, "error:"),
    ];
    for (server, key, status, words) in cases {
        let env = [("MODEL_POOL_SERVER", server), ("MODEL_POOL_ADMIN_KEY", key)];
        let (ended, shown) = Terminal::new(&program, folder, &["top"], &env, (80, 24)).end();
        assert_eq!(ended, Some(status), "{shown}");
        assert!(
            shown.contains(words) && !shown.contains("\x1b[?1049h"),
            "{shown:?}"
        );
    }
}

#[test]
fn chat_uses_the_same_server_and_key_options_as_other_commands() {
    let pool = Pool::with_models(&[stub("m", &[])], "auth: {inference: key}\n");
    let mut chat = at_terminal(&pool, &["chat", "m", "--no-history"], (80, 24));
    chat.wait_for(">>> ");
    chat.keys("Hello\r");
    chat.wait_for("Hello from m and goodbye");
    chat.wait_for_prompt();
    chat.keys("\x04");
    assert_eq!(chat.end().0, Some(0));
    let program = support::profile_dir().join("admin-client");
    let env = [
        ("MODEL_POOL_SERVER", pool.address()),
        ("MODEL_POOL_ADMIN_KEY", "mp-wrong"),
    ];
    let refused = Terminal::new(&program, pool.folder(), &["chat", "m"], &env, (80, 24));
    let (status, shown) = refused.end();
    assert_eq!(status, Some(1), "{shown}");
    assert!(shown.contains("MODEL_POOL_ADMIN_KEY"), "{shown}");
}
