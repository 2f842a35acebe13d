//! Rights over keys: what each administrator may grant.

use super::*;
use store::hash_key;

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn may(models: &[&str], routes: &[&str], limits: Option<Limit>) -> KeyUse {
    KeyUse {
        models: texts(models),
        routes: texts(routes),
        limits,
        log_prompts: false,
        group: None,
    }
}

fn holder(allowed: KeyUse, expires: Option<Time>) -> KeyRecord {
    KeyRecord {
        id: KeyId(7),
        name: "holder".to_owned(),
        role: Role::Admin,
        allowed,
        prefix: "mp-".to_owned(),
        hash: hash_key("x"),
        created: Time(0),
        last_used: None,
        expires,
        revoked: false,
    }
}

fn per_minute(requests: u32) -> Limit {
    Limit {
        requests_per_minute: Some(requests),
        ..Limit::default()
    }
}

const DEFAULT: Limit = Limit {
    requests_per_minute: Some(60),
    tokens_per_minute: None,
    concurrent_requests: None,
    tokens_per_day: None,
};

static HOLDER: Holder = Holder::Key(KeyId(7));
static BY: By = By {
    holder: &HOLDER,
    role: Role::Admin,
    default: DEFAULT,
};

/// The field that exceeds the holder's rights.
fn beyond(own: (KeyUse, Option<Time>), wanted: &KeyUse, expires: Option<Time>) -> Option<String> {
    let known = [holder(own.0, own.1)];
    let rights = Rights::new(&BY, &known, Time(1), &CallerGroups::default()).unwrap();
    let subject = Subject {
        role: Role::User,
        allowed: wanted,
        expires,
        group: None,
    };
    let beyond = rights.beyond(&subject, DEFAULT)?;
    Some(beyond.0.split(':').next().unwrap().to_owned())
}

#[test]
fn a_pattern_is_contained_in_another_if_that_is_decidable() {
    for (wanted, own, lies) in [
        ("/v1/models", "/v1/models", true),
        ("/v1/models", "/v1/*", true),
        ("/v1/chat/*", "/v1/*", true),
        ("/v1/*", "/v1/chat/*", false),
        ("/admin/keys", "/v1/*", false),
        ("*", "/v1/*", false),
        ("*", "*", true),
        ("/v1/m*", "*", true),
        ("tiny-?", "tiny-*", true),
        ("tiny-*", "tiny-?", false),
        ("*a*", "*a", false),
        ("/v1*", "/v1/*", false),
    ] {
        assert_eq!(lies_within(wanted, own), lies, "{wanted} in {own}");
    }
}

#[test]
fn a_key_cannot_grant_more_rights_than_it_has() {
    let keys_only = || (may(&[], &["/admin/keys"], None), None);
    let course = || {
        (
            may(
                &["tiny-*"],
                &["/admin/keys", "/v1/*"],
                Some(per_minute(100)),
            ),
            None,
        )
    };
    let free = || (may(&[], &[], None), None);
    let ends = || (may(&[], &[], None), Some(Time(100)));
    let (all, nothing_more) = (may(&[], &[], None), may(&[], &["/admin/keys"], None));
    let of = |field: &str| Some(field.to_owned());
    assert_eq!(beyond(keys_only(), &all, None), of("routes"));
    assert_eq!(beyond(keys_only(), &nothing_more, None), None);
    let looser = may(&[], &["/admin/keys"], Some(Limit::default()));
    assert_eq!(beyond(keys_only(), &looser, None), of("limits"));
    let chat = |models: &[&str], limit| may(models, &["/v1/chat/*"], Some(per_minute(limit)));
    assert_eq!(beyond(course(), &chat(&["tiny-chat"], 100), None), None);
    assert_eq!(beyond(course(), &chat(&[], 100), None), of("models"));
    assert_eq!(
        beyond(course(), &chat(&["tiny-chat", "big"], 1), None),
        of("models")
    );
    assert_eq!(
        beyond(course(), &chat(&["tiny-chat"], 101), None),
        of("limits")
    );
    assert_eq!(
        beyond(free(), &may(&[], &[], Some(Limit::default())), None),
        None
    );
    assert_eq!(beyond(ends(), &all, None), of("expires"));
    assert_eq!(beyond(ends(), &all, Some(Time(101))), of("expires"));
    assert_eq!(beyond(ends(), &all, Some(Time(100))), None);
}

#[test]
fn a_revoked_or_expired_key_has_no_rights() {
    let of =
        |key: KeyRecord| Rights::new(&BY, &[key], Time(10), &CallerGroups::default()).is_some();
    let whole = || holder(may(&[], &[], None), None);
    assert!(of(whole()));
    assert!(!of(KeyRecord {
        revoked: true,
        ..whole()
    }));
    assert!(!of(KeyRecord {
        expires: Some(Time(10)),
        ..whole()
    }));
    assert!(!of(KeyRecord {
        role: Role::User,
        ..whole()
    }));
    assert!(!of(KeyRecord {
        id: KeyId(8),
        ..whole()
    }));
}

const TREE: &str = "top: {models: [tiny-*, big], limits: {requests_per_minute: 100}}\nlab: {parent: top}\nteam: {parent: lab, models: ['*-chat']}\nother: {keys: [k9, course]}";

/// An administrator of this group.
fn group_admin(group: &str) -> KeyRecord {
    let allowed = KeyUse {
        group: Some(group.to_owned()),
        ..KeyUse::default()
    };
    KeyRecord {
        role: Role::GroupAdmin,
        ..holder(allowed, None)
    }
}

/// The field with which a key exceeds the rights of an administrator of `lab`, as it is and as a new key.
fn beyond_lab(role: Role, group: Option<&str>, allowed: &KeyUse) -> [Option<String>; 2] {
    let groups = CallerGroups::from_yaml(TREE);
    let by = By {
        role: Role::GroupAdmin,
        ..BY
    };
    let known = [group_admin("lab")];
    let rights = by.rights(&known, Time(1), &groups).expect("a group");
    let subject = Subject {
        role,
        allowed,
        expires: None,
        group: group.map(|name| groups.named(name).expect("a group")),
    };
    [by.check(&rights, &subject), by.check_new(&rights, &subject)].map(|checked| {
        let message = checked.err()?.to_string();
        Some(message.split(':').next().expect("a field").to_owned())
    })
}

#[test]
fn a_group_admin_has_rights_over_user_keys_of_its_groups_and_admins_of_groups_below() {
    let all = KeyUse::default();
    let field = |name: &str| [Some(name.to_owned()), Some(name.to_owned())];
    for (role, group, expected) in [
        (Role::User, Some("lab"), [None, None]),
        (Role::User, Some("team"), [None, None]),
        (Role::GroupAdmin, Some("team"), [None, None]),
        // They include its own key.
        (Role::GroupAdmin, Some("lab"), field("role")),
        (Role::Admin, Some("lab"), field("role")),
        (Role::Viewer, Some("team"), field("role")),
        (Role::User, Some("top"), field("group")),
        (Role::User, Some("other"), field("group")),
        (Role::GroupAdmin, Some("top"), field("group")),
        (Role::User, None, field("group")),
    ] {
        assert_eq!(
            beyond_lab(role, group, &all),
            expected,
            "{role:?} {group:?}"
        );
    }
}

#[test]
fn a_key_made_by_a_group_admin_stays_within_the_models_and_limits_of_its_group() {
    let new = |group: &str, allowed: &KeyUse| {
        let [found, made] = beyond_lab(Role::User, Some(group), allowed);
        assert_eq!(found, None, "an existing key may have more");
        made
    };
    let of = |field: &str| Some(field.to_owned());
    for (group, models, expected) in [
        ("lab", &["tiny-chat", "big"][..], None),
        ("lab", &["tiny-*"], None),
        ("lab", &["*"], of("models")),
        ("lab", &["bigger"], of("models")),
        ("team", &["tiny-chat"], None),
        ("team", &["tiny-guide"], of("models")),
    ] {
        assert_eq!(new(group, &may(models, &[], None)), expected, "{models:?}");
    }
    let limits = |limit| may(&[], &[], Some(limit));
    assert_eq!(new("team", &limits(per_minute(100))), None);
    assert_eq!(new("team", &limits(per_minute(101))), of("limits"));
    assert_eq!(new("team", &limits(Limit::default())), None);
}

#[test]
fn a_group_admin_without_a_group_in_force_or_in_another_role_has_no_rights() {
    let groups = CallerGroups::from_yaml(TREE);
    let as_group = By {
        role: Role::GroupAdmin,
        ..BY
    };
    let has = |by: &By, key: KeyRecord| by.rights(&[key], Time(1), &groups).is_ok();
    assert!(has(&as_group, group_admin("lab")));
    assert!(!has(&as_group, group_admin("gone")));
    assert!(!has(&BY, group_admin("lab")), "not as an administrator");
    let admin = KeyRecord {
        role: Role::Admin,
        ..group_admin("lab")
    };
    assert!(!has(&as_group, admin));
    let revoked = KeyRecord {
        revoked: true,
        ..group_admin("lab")
    };
    assert!(!has(&as_group, revoked));
}

#[test]
fn the_keys_that_group_admins_create_are_bounded_with_revoked_ones() {
    let groups = CallerGroups::from_yaml(TREE);
    let by = By {
        role: Role::GroupAdmin,
        ..BY
    };
    let member = |group: &str| KeyRecord {
        id: KeyId(1),
        role: Role::User,
        revoked: true,
        ..group_admin(group)
    };
    let mut known = vec![group_admin("lab")];
    known.extend((1..KEYS_OF_GROUP_MAX - 1).map(|_| member("team")));
    known.extend([member("other"), member("top"), member("gone")]);
    let rights = by.rights(&known, Time(1), &groups).expect("a group");
    assert!(rights.check_room(&known).is_ok());
    known.push(member("lab"));
    let refused = rights.check_room(&known).expect_err("full").to_string();
    assert!(refused.contains("10000"), "{refused}");
    let admin = [holder(KeyUse::default(), None)];
    let of_pool = BY.rights(&admin, Time(1), &groups).expect("an admin");
    assert!(of_pool.check_room(&known).is_ok());
}
