//! Broken environments of vLLM: moved, half installed, without Python, without the expected package name; and a script in place of
//! the program.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::rig::*;

fn executable(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
}

/// Links to the environment's packages, except those with these prefixes, in a folder.
fn packages_without(environment: &Path, left_out: &[&str], into: &Path) {
    let lib = fs::read_dir(environment.join("lib")).expect("its packages");
    let python = lib
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with("python3"));
    let packages = python.expect("a Python").path().join("site-packages");
    fs::create_dir_all(into).expect("a folder");
    for entry in fs::read_dir(packages).expect("its packages").flatten() {
        let name = entry.file_name();
        let is_left_out = |start: &&str| name.to_string_lossy().starts_with(*start);
        if !left_out.iter().any(is_left_out) {
            symlink(entry.path(), into.join(name)).expect("linked");
        }
    }
}

/// A program that runs vLLM with only the packages of a folder.
fn with_packages(environment: &Path, home: &Path, name: &str, left_out: &[&str]) -> PathBuf {
    let packages = home.join(name).join("packages");
    packages_without(environment, left_out, &packages);
    let base = fs::canonicalize(environment.join("bin/python")).expect("its Python");
    let program = home.join(name).join("bin/vllm");
    // `-S`: without the packages of Python's own installation.
    executable(
        &program,
        &format!(
            "#!/bin/sh\nexec env PYTHONPATH={} {} -S -c 'import sys; from vllm.entrypoints.cli.main import main; sys.exit(main())' \"$@\"\n",
            packages.display(),
            base.display()
        ),
    );
    program
}

#[test]
fn a_wrapper_script_serves_and_each_broken_environment_is_reported() {
    let Some(environment) = environment() else {
        return;
    };
    let _alone = alone();
    let home = tempfile::tempdir().expect("a folder");
    let home = home.path();
    let vllm = environment.join("bin/vllm");
    let script = home.join("script/run-vllm.sh");
    executable(
        &script,
        &format!("#!/bin/sh\nexec {} \"$@\"\n", vllm.display()),
    );
    // The programs of a virtual environment contain the path of its Python.
    let moved = home.join("moved/bin/vllm");
    executable(
        &moved,
        "#!/nowhere/venv/bin/python\nfrom vllm.entrypoints.cli.main import main\n",
    );
    let folder = demo();
    let of = |name: &'static str, program: PathBuf| {
        let model = RealModel {
            program: Some(program),
            ..RealModel::new(&environment, name, &folder)
        };
        model.file()
    };
    let files = [
        of("script", script),
        of("moved", moved),
        of(
            "half",
            with_packages(&environment, home, "half", &["msgspec"]),
        ),
        of(
            "nameless",
            with_packages(&environment, home, "nameless", &["vllm-"]),
        ),
        of("absent", home.join("absent/bin/vllm")),
    ];
    let pool = pool(&files);
    for (name, kind, says) in [
        (
            "moved",
            "program missing",
            &["/nowhere/venv/bin/python", "moved"][..],
        ),
        (
            "absent",
            "program missing",
            &["absent/bin/vllm", "pip install vllm"],
        ),
        ("half", "library missing", &["msgspec", "environment"]),
        ("nameless", "library missing", &["dist-info", "pip install"]),
    ] {
        let reason = failed_load(&pool, name);
        println!("{name}: {reason}\n");
        assert!(reason.starts_with(&format!("{kind}:")), "{name}: {reason}");
        for word in says {
            assert!(reason.contains(word), "{name}, {word}: {reason}");
        }
    }
    load(&pool, "script");
    ask(&pool, CHAT, &short("script"));
}
