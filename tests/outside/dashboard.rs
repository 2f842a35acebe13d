//! The dashboard in a real Chromium, with the real program and stub engines. The checks are `tests/dashboard/drive.py`;
//! `.ci/dashboard` installs its requirements, and without it these tests report that they were skipped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use support::external_programs::skipped;
use support::provider::{CLIENT, Provider};
use support::root;
use support::service::{Pool, wait_for};

mod leases;

/// Two devices; `large` nearly fills one.
const CONFIG: &str = "inventory: {provider: fixed, headroom: 0%, devices: [{name: gpu0, memory: 16GiB}, {name: gpu1, memory: 16GiB}]}\n";
const LIMIT: Duration = Duration::from_secs(500);
/// Checks that a test runs: all checks of a file, or checks with a common name prefix.
const PEOPLE: &[&str] = &["steering", "people", "groups", "playground", "a_change"];
const EFFECTS: &[&str] = &["effects", "signs"];
const BATCHES: &[&str] = &["batches"];
const LOOKS: &[&str] = &["looks"];
const EVENTS: &[&str] = &["a_hundred"];
const KEPT: &[&str] = &["kept_for"];
const SLEPT: &[&str] = &["slept_for", "jumps_of"];
const TABS: &[&str] = &["with_two_hundred"];
const SIGN_ON: &[&str] = &["sign_on"];
const MANY: &[&str] = &["many_"];
const LEASES: &[&str] = &["leases"];
/// Folder for screenshots of every screen, for manual inspection.
const SCREENSHOTS: &str = "MODEL_POOL_SCREENSHOTS";
/// Folder with dashboard files to use instead of the embedded ones.
const FILES: &str = "MODEL_POOL_DASHBOARD_FILES";

/// A file that `.ci/dashboard` installs.
fn brought(path: &str) -> Option<PathBuf> {
    let path = root().join("target/dashboard").join(path);
    let has_browser = Path::new("/usr/bin/chromium").exists();
    if path.exists() && has_browser {
        return Some(path);
    }
    let lacking = if has_browser {
        path.display().to_string()
    } else {
        "/usr/bin/chromium".to_owned()
    };
    let why = format!(
        "there is no {lacking}. Bring it with `bash .ci/dashboard`, and run `cargo test --test outside dashboard::`"
    );
    skipped("dashboard", &why);
    None
}

fn model(name: &str, gib: u32, priority: u32, words: &str) -> (String, String) {
    let program = support::stub::stub_engine().display().to_string();
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  command: [{program:?}, --port, \"{{{{ port }}}}\", --model, {name}, --tokens, \"40\", --token-ms, \"5\"{words}]\n  ready_path: /health\n  served_model_name: {name}\npool_config: {{memory_gib: {gib}, priority: {priority}}}\n"
    );
    (format!("{}.yaml", name.replace('/', "-")), text)
}

fn key(pool: &Pool, role: &str) -> String {
    let body = json!({"name": format!("a {role}"), "role": role}).to_string();
    let (status, text, _) = pool.request("POST", "/llm/admin/keys", &body, Some(&pool.admin_key()));
    assert_eq!(status, 200, "{text}");
    let made: Value = serde_json::from_str(&text).unwrap();
    made["key"].as_str().unwrap().to_owned()
}

/// Runs the driver to its end and returns what it prints.
fn drive(pool: &Pool, checks: &[&str]) -> Option<String> {
    drive_with(pool, checks, &[])
}

/// Timed measurements run without other browsers.
static BROWSERS: RwLock<()> = RwLock::new(());

/// As `drive`, with these variables.
fn drive_with(pool: &Pool, checks: &[&str], variables: &[(&str, &str)]) -> Option<String> {
    let python = brought("venv/bin/python")?;
    let axe = brought("node_modules/axe-core/axe.min.js")?;
    let is_timed = [EVENTS, TABS, MANY].contains(&checks);
    let alone = || BROWSERS.write().unwrap_or_else(PoisonError::into_inner);
    let beside = || BROWSERS.read().unwrap_or_else(PoisonError::into_inner);
    let _alone = is_timed.then(alone);
    let _beside = (!is_timed).then(beside);
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    let into = File::create(&output).unwrap();
    let mut command = Command::new(&python);
    command
        .arg(root().join("tests/dashboard/drive.py"))
        .args(checks)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", folder.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("MODEL_POOL_URL", format!("http://{}/llm", pool.address()))
        .env("MODEL_POOL_ADMIN_KEY", pool.admin_key())
        .env("MODEL_POOL_AXE", axe)
        .envs(variables.iter().copied())
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stderr(into.try_clone().unwrap())
        .stdout(into);
    for name in [SCREENSHOTS, FILES] {
        if let Some(folder) = std::env::var_os(name) {
            command.env(name, folder);
        }
    }
    for role in ["user", "viewer"] {
        let name = format!("MODEL_POOL_{}_KEY", role.to_uppercase());
        command.env(name, key(pool, role));
    }
    let mut child = command.spawn().unwrap();
    let began = SystemTime::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if began.elapsed().unwrap_or_default() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        thread::park_timeout(Duration::from_millis(20));
    };
    let text = String::from_utf8_lossy(&fs::read(&output).unwrap()).into_owned();
    println!("{text}");
    let status = status.unwrap_or_else(|| panic!("it took longer than {LIMIT:?}:\n{text}"));
    assert!(status.success(), "{status}\n{text}");
    assert!(text.trim_end().ends_with(" passed, 0 failed"), "{text}");
    assert!(!pool.log().contains("panicked"), "{}", pool.log());
    Some(text)
}

fn is_ready(pool: &Pool, name: &str) -> bool {
    let path = format!("/llm/admin/models?model={name}");
    let (_, text, _) = pool.request("GET", &path, "", Some(&pool.admin_key()));
    text.contains("\"state\":\"ready\"")
}

/// Five models of which not all fit.
fn lab() -> Pool {
    let printed =
        r#", --stderr, "\x1b[32mgreen\x1b[0m <img src=x onerror=alert(1)> \x1b]0;title\x07plain""#;
    let files = [
        model("steady", 2, 2, ""),
        model("small", 4, 0, printed),
        model("other", 4, 0, ""),
        model("filler", 15, 0, ""),
        model("large", 14, 1, ""),
    ];
    let pool = Pool::with_devices(&files, &format!("{CONFIG}auth: {{inference: key}}\n"));
    wait_for("the always-hot model", || is_ready(&pool, "steady"));
    pool
}

#[test]
fn the_dashboard_shows_and_controls_the_pool_in_a_browser() {
    on_the_lab(PEOPLE);
}

#[test]
fn controls_show_their_effect_before_confirmation_and_indicators_follow_the_pool() {
    on_the_lab(EFFECTS);
}

#[test]
fn batches_are_listed_and_every_change_of_one_is_confirmed_in_a_browser() {
    on_the_lab(BATCHES);
}

#[test]
fn every_screen_and_dialog_fits_and_is_accessible() {
    on_the_lab(LOOKS);
}

#[test]
fn a_hundred_events_a_second_reach_a_page_immediately() {
    on_the_lab(EVENTS);
}

#[test]
fn a_tab_open_for_eight_hours_stays_small() {
    on_the_lab(KEPT);
}

#[test]
fn a_tab_that_was_suspended_or_whose_clock_jumped_shows_correct_values() {
    on_the_lab(SLEPT);
}

#[test]
fn two_hundred_tabs_are_updated_live() {
    on_the_lab(TABS);
}

fn on_the_lab(checks: &[&str]) {
    if brought("venv/bin/python").is_some() {
        drive(&lab(), checks);
    }
}

/// A check that no test names would never run.
#[test]
fn every_check_of_the_browser_belongs_to_one_test() {
    let named: Vec<&str> = [
        PEOPLE, BATCHES, EFFECTS, LOOKS, EVENTS, KEPT, SLEPT, TABS, SIGN_ON, MANY, LEASES,
    ]
    .concat();
    let folder = fs::read_dir(root().join("tests/dashboard")).unwrap();
    let files = folder.map(|entry| entry.unwrap().path());
    let mut checks = 0;
    for file in files.filter(|path| path.extension().is_some_and(|extension| extension == "py")) {
        let text = fs::read_to_string(&file).unwrap();
        let module = file.file_stem().unwrap().to_str().unwrap();
        for part in text.split("\n@check\ndef ").skip(1) {
            let check = part.split('(').next().unwrap();
            let by = named.iter();
            let by = by.filter(|name| **name == module || check.starts_with(**name));
            assert_eq!(by.count(), 1, "{module}.py: {check}");
            checks += 1;
        }
    }
    assert!(checks > 20, "{checks} checks");
}

#[test]
fn users_sign_in_through_an_oidc_issuer_in_a_browser() {
    if brought("venv/bin/python").is_none() {
        return;
    }
    let provider = Provider::start();
    let oidc = json!({
        "issuer": provider.url, "audience": "model-pool", "browser": {"client_id": CLIENT},
        "groups": {"staff": {"role": "admin"}, "students": {"role": "user"}, "guests": {"role": "viewer"}},
    });
    let pool = Pool::demo_with(&format!(
        "evening: {{cleanup: null, reopen: null}}\nauth: {{inference: key, oidc: {oidc}}}\n"
    ));
    let mut now = provider.now();
    now.redirect_uri = format!("http://{}/llm/session/signed-on", pool.address());
    for (name, groups) in [
        ("ann", vec!["staff"]),
        ("bob", vec!["students"]),
        ("gus", vec!["guests"]),
        ("eve", vec![]),
    ] {
        let groups = groups.into_iter().map(str::to_owned).collect();
        now.people.insert(name.to_owned(), groups);
    }
    drop(now);
    let host = provider.url.split('/').nth(2).unwrap();
    drive_with(&pool, SIGN_ON, &[("MODEL_POOL_ISSUER", host)]);
    let now = provider.now();
    assert!(now.failures.is_empty(), "{:?}", now.failures);
}

#[test]
fn five_hundred_models_on_sixty_four_devices_are_shown_together() {
    if brought("venv/bin/python").is_none() {
        return;
    }
    let files: Vec<_> = (0..500)
        .map(|nth| model(&format!("org-{}/model-{nth:03}", nth % 20), 3, 0, ""))
        .collect();
    let devices: Vec<_> = (0..64)
        .map(|nth| format!("{{name: gpu{nth}, memory: 80GiB}}"))
        .collect();
    let config = format!(
        "inventory: {{provider: fixed, devices: [{}]}}\nauth: {{inference: key}}\n",
        devices.join(", ")
    );
    let pool = Pool::with_devices(&files, &config);
    drive(&pool, MANY);
}
