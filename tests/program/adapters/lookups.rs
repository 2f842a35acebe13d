//! Lookups of adapters: the limit per caller (B1), files that never end, and links that leave the folder.

use super::*;

#[test]
fn a_caller_that_invents_adapter_names_is_throttled_and_others_are_not() {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder.path().join("own:1"), "lab/tiny", 4, 1);
    let pool = Pool::with_models(&[model(folder.path(), "")], "");
    ask(&pool, "lab/tiny:own:1");
    let mut statuses = Vec::new();
    for nth in 0..400 {
        statuses.push(refused(&pool, &format!("lab/tiny:none:{nth}")).0);
        if nth % 50 == 0 {
            ask(&pool, "lab/tiny:own:1");
        }
    }
    assert!(statuses.contains(&404) && statuses.iter().all(|status| [404, 429].contains(status)));
    assert!(
        listed(&pool).len() <= 2,
        "names that are not there are not listed"
    );
}

#[test]
fn b1_a_user_who_invents_adapter_names_leaves_lookups_to_others() {
    let folder = tempfile::tempdir().expect("a folder");
    for nth in 0..20 {
        write(&folder.path().join(format!("own:{nth}")), "lab/tiny", 4, 1);
    }
    let pool = Pool::with_models(&[model(folder.path(), "")], "auth: {inference: key}\n");
    let key = |name: &str| {
        let body = json!({"name": name, "role": "user"}).to_string();
        let admin = pool.admin_key();
        let (status, text, _) = pool.request("POST", "/llm/admin/keys", &body, Some(&admin));
        assert!(status < 300, "{text}");
        let made: Value = serde_json::from_str(&text).expect("JSON");
        made["key"].as_str().expect("a key").to_owned()
    };
    let (inventor, other) = (key("inventor"), key("other"));
    let look = |key: &str, name: &str| {
        let path = format!("/v1/models/{name}");
        pool.request("GET", &path, "", Some(key)).0
    };
    let ends = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        let flood = |thread: usize| {
            let (look, ends, inventor) = (&look, &ends, &inventor);
            move || {
                let mut limited = 0;
                let mut nth = 0;
                while !ends.load(relaxed) {
                    nth += 1;
                    let status = look(inventor, &format!("lab/tiny:none{thread}:{nth}"));
                    assert!([404, 429].contains(&status), "{status}");
                    limited += u32::from(status == 429);
                }
                limited
            }
        };
        let floods: Vec<_> = (0..4).map(|thread| scope.spawn(flood(thread))).collect();
        // Names that no request has used, which all need a lookup.
        for nth in 0..20 {
            let status = look(&other, &format!("lab/tiny:own:{nth}"));
            if status != 200 {
                ends.store(true, relaxed);
            }
            assert_eq!(status, 200, "own:{nth}");
        }
        ends.store(true, relaxed);
        let limited: u32 = floods.into_iter().map(|flood| flood.join().unwrap()).sum();
        println!("{limited} names of the inventor were refused");
    });
}

#[test]
fn endless_files_block_no_lookup() {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder.path().join("own:1"), "lab/tiny", 4, 1);
    let adapter = |name: &str| {
        let at = folder.path().join(name);
        write(&at, "lab/tiny", 4, 1);
        at
    };
    let pipe = |path: &Path| {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.expect("mkfifo").success());
    };
    let mut names = Vec::new();
    for (file, kind) in [
        ("adapter_config.json", "config"),
        ("adapter_model.safetensors", "weights"),
    ] {
        for nth in 0..6 {
            let at = adapter(&format!("pipe-{kind}:{nth}")).join(file);
            fs::remove_file(&at).expect("removed");
            pipe(&at);
            names.push(format!("pipe-{kind}:{nth}"));
        }
        for device in ["/dev/zero", "/dev/random", "/proc/self/mem"] {
            let name = format!("link-{kind}-{}:1", device.rsplit('/').next().unwrap());
            let at = adapter(&name).join(file);
            fs::remove_file(&at).expect("removed");
            symlink(device, &at).expect("a link");
            names.push(name);
        }
        let at = adapter(&format!("socket-{kind}:1")).join(file);
        fs::remove_file(&at).expect("removed");
        drop(std::os::unix::net::UnixListener::bind(&at).expect("a socket"));
        names.push(format!("socket-{kind}:1"));
    }
    let pool = Pool::with_models(&[model(folder.path(), "")], "");
    std::thread::scope(|scope| {
        for name in &names {
            let pool = &pool;
            scope.spawn(move || {
                let (status, message) = refused(pool, &format!("lab/tiny:{name}"));
                assert_eq!(status, 400, "{name}: {message}");
            });
        }
    });
    assert!(!ask(&pool, "lab/tiny:own:1").is_empty());
}

#[test]
fn a_link_of_another_account_that_leaves_the_folder_is_not_followed() {
    // Only root can create files of other accounts.
    if fs::metadata("/proc/self")
        .map(|own| std::os::unix::fs::MetadataExt::uid(&own))
        .ok()
        != Some(0)
    {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (root, private) = (
        folder.path().join("adapters"),
        folder.path().join("private"),
    );
    write(&private.join("own:1"), "lab/tiny", 4, 1);
    write(&root.join("inside:1"), "lab/tiny", 4, 1);
    let link = |target: &Path, name: &Path, owner: u32| {
        symlink(target, name).expect("a link");
        std::os::unix::fs::lchown(name, Some(owner), None).expect("given away");
    };
    link(&private.join("own:1"), &root.join("folder:1"), 4242);
    link(&private.join("own:1"), &root.join("administrator:1"), 0);
    link(&root.join("inside:1"), &root.join("again:1"), 4242);
    write(&root.join("file:1"), "lab/tiny", 4, 2);
    let weights = root.join("file:1/adapter_model.safetensors");
    fs::remove_file(&weights).expect("removed");
    link(
        &private.join("own:1/adapter_model.safetensors"),
        &weights,
        4242,
    );
    let pool = Pool::with_models(&[model(&root, "")], "");
    for name in ["folder:1", "file:1"] {
        let (status, message) = refused(&pool, &format!("lab/tiny:{name}"));
        assert_eq!(status, 400, "{name}: {message}");
        assert!(
            message.contains("is a symbolic link out of the folder"),
            "{message}"
        );
        let place = folder.path().display().to_string();
        assert!(!message.contains(&place), "{message}");
    }
    for name in ["administrator:1", "again:1", "inside:1"] {
        assert!(!ask(&pool, &format!("lab/tiny:{name}")).is_empty());
    }
}
