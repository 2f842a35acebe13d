//! What becomes of engines when the controller dies without a word: the test runs itself as a
//! controller in another process and kills it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::running::{Running, command, is_alive, launch, pid_in, until_gone};
use crate::stub::stub_engine;
use model_pool::engine::{CandleDevice, CandleProgram, Program, kill_orphans};

const ROLE: &str = "TEST_CONTROLLER_OF";
const SECRET: &str = "MODEL_POOL_ADMIN_KEY";

/// Not a test by itself: it is the controller that the others start, and waits to be killed.
#[tokio::test]
async fn the_controller_of_the_other_tests() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let program = stub_engine();
    let program = match role.as_str() {
        "command" => command(&[
            program.to_str().unwrap(),
            "--port",
            "{{ port }}",
            "--ignore-term",
            "--spawn-grandchild",
        ]),
        _ => Program::Candle(CandleProgram {
            executable: program,
            model_dir: home.path().to_owned(),
            context_tokens: 16,
            concurrency: 1,
            threads: None,
            device: CandleDevice::Cpu,
            env: Default::default(),
        }),
    };
    let mut engine = Running::prepare(launch(program, home.path()), home);
    engine.go();
    let (pid, _) = engine.started().await;
    engine.ready().await;
    if role == "command" {
        let grandchild = pid_in(&engine.line("grandchild ").await);
        eprintln!("pids {pid} {grandchild}");
    } else {
        eprintln!("pids {pid} {pid}");
    }
    std::future::pending::<()>().await;
}

/// A controller whose engine is ready, the engine's process, and the engine's child.
fn controller(role: &str) -> (Child, u32, u32) {
    let mut controller = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "controller_death::the_controller_of_the_other_tests",
            "--nocapture",
        ])
        .env(ROLE, role)
        .env(SECRET, "do-not-leak")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(controller.stderr.take().unwrap());
    let line = output
        .lines()
        .map_while(Result::ok)
        .find(|line| line.starts_with("pids "))
        .expect("the controller starts its engine");
    let pids: Vec<u32> = line
        .split(' ')
        .skip(1)
        .map(|pid| pid.parse().unwrap())
        .collect();
    (controller, pids[0], pids[1])
}

fn kill_now(mut controller: Child) {
    controller.kill().unwrap();
    controller.wait().unwrap();
}

#[tokio::test]
async fn an_engine_dies_with_its_controller_and_its_orphans_are_found() {
    let (process, engine, grandchild) = controller("command");
    let own = process.id();
    assert!(is_alive(engine) && is_alive(grandchild));
    let is_orphan = |pid| kill_orphans().iter().any(|orphan| orphan.pid == pid);
    assert!(!is_orphan(grandchild), "its controller {own} lives");
    kill_now(process);
    until_gone(engine).await;
    assert!(is_alive(grandchild), "nothing else ends it");
    assert!(is_orphan(grandchild));
    until_gone(grandchild).await;
}

#[tokio::test]
async fn the_embedded_engine_dies_with_its_controller() {
    let (process, engine, _) = controller("candle");
    kill_now(process);
    until_gone(engine).await;
}

#[tokio::test]
async fn a_key_in_the_controllers_environment_does_not_reach_an_engine() {
    let (process, engine, _) = controller("candle");
    let environment = std::fs::read(format!("/proc/{engine}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    kill_now(process);
    assert!(environment.contains("MODEL_POOL_ENGINE="), "{environment}");
    assert!(!environment.contains("do-not-leak"));
    assert!(!environment.contains(SECRET));
}
