//! Tests of `cli`.

use super::*;
use clap::CommandFactory;
use clap::error::ErrorKind;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

fn refusal(line: &str) -> ErrorKind {
    parse(line).expect_err(line).kind()
}

#[test]
fn the_command_line_definition_is_valid() {
    Cli::command().debug_assert();
}

#[test]
fn load_takes_every_flag_of_the_interface() {
    let cli = parse(
        "admin-client load org/m --priority 3 --keep-hot 10m --lease 2h --gpus 2 --replicas 4 --force --no-wait",
    )
    .expect("parses");
    let Command::Load(load) = cli.command else {
        panic!("not a load: {:?}", cli.command);
    };
    assert_eq!(load.model, "org/m");
    assert_eq!(load.wish.priority, Some(3));
    assert_eq!(load.wish.keep_hot.as_deref(), Some("10m"));
    assert_eq!(load.wish.lease.as_deref(), Some("2h"));
    assert_eq!((load.wish.gpus, load.wish.replicas), (Some(2), Some(4)));
    assert!(load.wish.force && load.no_wait && !load.dry_run);
}

#[test]
fn an_invalid_time_and_a_zero_count_are_usage_errors() {
    assert_eq!(
        refusal("admin-client load m --lease soon"),
        ErrorKind::ValueValidation
    );
    assert_eq!(
        refusal("admin-client load m --gpus 0"),
        ErrorKind::ValueValidation
    );
    for priority in ["--priority=-1", "--priority -1"] {
        assert_eq!(
            refusal(&format!("admin-client plan m {priority}")),
            ErrorKind::ValueValidation
        );
    }
    assert_eq!(
        refusal("admin-client load m --keep-hot -5m"),
        ErrorKind::ValueValidation
    );
}

#[test]
fn set_requires_at_least_one_change_and_accepts_none_to_clear() {
    assert_eq!(
        refusal("admin-client set m"),
        ErrorKind::MissingRequiredArgument
    );
    let cli = parse("admin-client set m --priority none --keep-hot 5m").expect("parses");
    let Command::Set(set) = cli.command else {
        panic!("not a set: {:?}", cli.command);
    };
    assert_eq!(set.priority, Some(Change::Clear));
    assert_eq!(set.keep_hot, Some(Change::To("5m".to_owned())));
    assert_eq!(set.lease, None);
}

#[test]
fn the_global_flags_may_follow_the_command() {
    let cli = parse("admin-client models --json --server http://h:1").expect("parses");
    assert!(cli.json);
    assert_eq!(cli.server, "http://h:1");
}

#[test]
fn a_key_does_not_show_in_debug_output() {
    let cli = parse("admin-client models --key mp-secret").expect("parses");
    assert!(!format!("{cli:?}").contains("secret"));
}

#[test]
fn a_key_needs_a_role() {
    assert_eq!(
        refusal("admin-client keys create ann"),
        ErrorKind::MissingRequiredArgument
    );
    assert!(parse("admin-client keys create ann --role user --expires 30d").is_ok());
}
