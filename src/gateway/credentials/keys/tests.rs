//! Tests of the validity of keys and of the last administrator.

use super::*;

fn key(id: u64, role: Role, revoked: bool) -> KeyRecord {
    KeyRecord {
        id: KeyId(id),
        name: format!("key {id}"),
        role,
        allowed: KeyUse::default(),
        prefix: "mp-".to_owned(),
        hash: hash_key("x"),
        created: Time(0),
        last_used: None,
        expires: None,
        revoked,
    }
}

#[test]
fn a_clock_set_back_does_not_revalidate_an_expired_key() {
    let limited = KeyRecord {
        created: Time(10_000_000),
        expires: Some(Time(11_000_000)),
        ..key(1, Role::User, false)
    };
    let valid = |now| limited.is_valid(Time(now));
    assert!(valid(10_000_000) && valid(10_999_999) && !valid(11_000_000));
    assert!(valid(9_700_000), "a correction by a time service");
    assert!(!valid(9_699_999) && !valid(0));
    let unlimited = KeyRecord {
        expires: None,
        ..limited.clone()
    };
    assert!(unlimited.is_valid(Time(0)), "administrators still get in");
    assert_eq!(early_keys(&[limited, unlimited], Time(0)), ["key 1"]);
}

#[test]
fn the_last_valid_admin_key_is_recognized() {
    let keys = vec![
        key(1, Role::Admin, true),
        key(2, Role::Admin, false),
        key(3, Role::User, false),
    ];
    assert!(is_last_admin(&keys, KeyId(2), Time(1)));
    assert!(!is_last_admin(&keys, KeyId(3), Time(1)));
    let mut two = vec![key(1, Role::Admin, false), key(2, Role::Admin, false)];
    assert!(!is_last_admin(&two, KeyId(1), Time(1)));
    two[1].allowed.routes = vec!["/admin/plan".to_owned()];
    assert!(
        is_last_admin(&two, KeyId(1), Time(1)),
        "the other may only read plans"
    );
}
