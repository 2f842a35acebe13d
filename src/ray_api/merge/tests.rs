//! Tests of the body of a write.

use super::*;

const PREFIX: &str = "model-pool.lab.r";
/// Spaces and numbers that no JSON writer would reproduce.
const THEIRS: &str = r#"{"name": "theirs",  "import_path":"a:b", "args": {"x": 1.50, "y": 1e2}}"#;

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("JSON")
}

fn list(applications: &str) -> Listing {
    let text = format!(
        r#"{{"proxy_location": "HeadOnly", "http_options": {{"host":"127.0.0.1", "port":  8001}}, "applications": {{{applications}}}, "target_capacity": 50.0}}"#
    );
    Listing::parse(&text).expect("a list")
}

fn theirs(status: &str) -> String {
    format!(
        r#""theirs": {{"status": "{status}", "message": "", "deployed_app_config": {THEIRS}, "deployments": {{}}}}"#
    )
}

fn own(wanted: &WantedApplications) -> Ownership<'_> {
    Ownership {
        prefix: PREFIX,
        wanted,
        kept: KeptApplications::default(),
    }
}

#[test]
fn foreign_applications_and_serve_options_stay_byte_for_byte() {
    let config = r#"{"name":"model-pool.lab.r1","import_path":"c:d"}"#;
    let wanted = WantedApplications::from([("model-pool.lab.r1".to_owned(), raw(config))]);
    let body = body(&list(&theirs("RUNNING")), &own(&wanted)).expect("JSON");
    assert_eq!(
        body,
        format!(
            r#"{{"proxy_location":"HeadOnly","http_options":{{"host":"127.0.0.1", "port":  8001}},"target_capacity":50.0,"applications":[{THEIRS},{config}]}}"#
        )
    );
}

#[test]
fn deleting_and_code_deployed_applications_are_omitted_from_writes() {
    let leaving = list(&theirs("DELETING"));
    let code = list(r#""code": {"status": "RUNNING", "deployed_app_config": null}"#);
    for listing in [leaving, code] {
        let body = body(&listing, &own(&WantedApplications::new())).expect("JSON");
        assert!(body.ends_with(r#""applications":[]}"#), "{body}");
    }
}

#[test]
fn only_names_with_the_prefix_and_a_replica_number_belong_to_the_pool() {
    for (name, own) in [
        ("model-pool.lab.r12", true),
        ("model-pool.lab.r", false),
        ("model-pool.lab.rx1", false),
        ("model-pool.lab2.r1", false),
        ("model-pool", false),
    ] {
        assert_eq!(is_own(name, PREFIX), own, "{name}");
    }
}

#[test]
fn a_changed_configuration_is_a_change_but_a_changed_status_is_not() {
    let before = list(&theirs("RUNNING"));
    assert!(is_same(&before, &list(&theirs("DEPLOYING"))));
    assert!(!is_same(&before, &list(&theirs("DELETING"))));
    assert!(!is_same(
        &before,
        &list(&theirs("RUNNING").replace("1.50", "1.51"))
    ));
    assert!(!is_same(&before, &list("")));
}

#[test]
fn an_application_of_another_model_under_the_name_is_not_the_wanted_one() {
    let config = |model: &str| {
        format!(
            r#"{{"name":"model-pool.lab.r1","runtime_env":{{"env_vars":{{"MODEL_POOL_MODEL":"{model}"}}}}}}"#
        )
    };
    let deployed = list(&format!(
        r#""model-pool.lab.r1": {{"status": "DEPLOYING", "deployed_app_config": {}}}"#,
        config("a")
    ));
    let wanted = |model: &str| {
        WantedApplications::from([("model-pool.lab.r1".to_owned(), raw(&config(model)))])
    };
    assert!(is_carried_out(&deployed, &own(&wanted("a"))));
    assert!(!is_carried_out(&deployed, &own(&wanted("b"))));
    let none = WantedApplications::new();
    assert!(!is_carried_out(&deployed, &own(&none)), "left over");
}

#[test]
fn another_writers_application_is_kept_in_the_written_configuration() {
    let config = r#"{"name":"model-pool.lab.r1",  "import_path":"c:d"}"#;
    let there = list(&format!(
        r#""model-pool.lab.r1": {{"status": "RUNNING", "deployed_app_config": {config}}}"#
    ));
    let none = WantedApplications::new();
    let mut own = own(&none);
    assert!(own.is_left_over("model-pool.lab.r1"));
    assert_eq!(written(&there, &own), BTreeSet::new());
    own.kept.alive.insert("model-pool.lab.r1".to_owned());
    assert!(is_carried_out(&there, &own));
    assert!(!has_former(&there, &own));
    let body = body(&there, &own).expect("JSON");
    assert!(body.contains(config), "{body}");
    // Such a write may bring the application back if it is interrupted.
    let expected = BTreeSet::from(["model-pool.lab.r1".to_owned()]);
    assert_eq!(written(&there, &own), expected);
}

#[test]
fn a_spared_application_is_kept_and_still_belongs_to_an_earlier_process() {
    let config = r#"{"name":"model-pool.lab.r1",  "import_path":"c:d"}"#;
    let there = list(&format!(
        r#""model-pool.lab.r1": {{"status": "RUNNING", "deployed_app_config": {config}}}"#
    ));
    let none = WantedApplications::new();
    let mut own = own(&none);
    own.kept.spared.insert("model-pool.lab.r1".to_owned());
    assert!(is_carried_out(&there, &own));
    assert!(has_former(&there, &own), "the Ray is not forgotten");
    assert!(body(&there, &own).expect("JSON").contains(config));
    own.kept.spared.clear();
    own.kept.all_but = Some(BTreeSet::from(["model-pool.lab.r2".to_owned()]));
    assert!(!own.is_left_over("model-pool.lab.r1"));
    assert!(own.is_left_over("model-pool.lab.r2"), "of this process");
}
