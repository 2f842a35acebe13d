//! Engines after the controller is killed: the test runs itself as a controller in another process and kills it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::replica::{RunningReplica, command, is_alive, launch, now, pid_in, until_gone};
use model_pool::engine::{CandleDevice, CandleProgram, Program, kill_orphans};
use support::stub::stub_engine;

const ROLE: &str = "TEST_CONTROLLER_OF";
const SECRET: &str = "MODEL_POOL_ADMIN_KEY";
/// Ample time for a kill on a busy machine.
const SOON: Duration = Duration::from_secs(5);

/// A helper, not a test: the other tests start it as their controller and kill it.
#[tokio::test]
async fn controller_process_entry_point() {
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
        _ => {
            let model = home.path().to_owned();
            Program::Candle(CandleProgram::new(program, model, CandleDevice::Cpu))
        }
    };
    let mut engine = RunningReplica::prepare(launch(program, home.path()), home);
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

/// A controller with a ready engine. Dropping it kills it.
struct Controller {
    process: Child,
    engine: u32,
    /// The engine's child, or the engine itself if it has none.
    grandchild: u32,
    /// Files that remain when it is killed.
    _home: TempDir,
}

impl Controller {
    fn start(role: &str) -> Controller {
        let home = tempfile::tempdir().unwrap();
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "controller_death::controller_process_entry_point",
                "--nocapture",
            ])
            .env(ROLE, role)
            .env(SECRET, "do-not-leak")
            .env("TMPDIR", home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stderr.take().unwrap());
        let line = output
            .lines()
            .map_while(Result::ok)
            .find(|line| line.starts_with("pids "))
            .expect("the controller starts its engine");
        let mut pids = line.split(' ').skip(1).map(|pid| pid.parse().unwrap());
        Controller {
            process,
            engine: pids.next().unwrap(),
            grandchild: pids.next().unwrap(),
            _home: home,
        }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.kill();
    }
}

#[tokio::test]
async fn an_engine_and_its_grandchildren_die_with_their_controller() {
    let mut controller = Controller::start("command");
    let Controller {
        engine, grandchild, ..
    } = controller;
    assert!(is_alive(engine) && is_alive(grandchild));
    let finds = || kill_orphans().iter().any(|orphan| orphan.pid == grandchild);
    assert!(!finds() && is_alive(grandchild), "its guardian lives");
    controller.kill();
    let before = now();
    until_gone(engine).await;
    until_gone(grandchild).await;
    assert!(before.elapsed() < SOON);
}

#[tokio::test]
async fn the_embedded_engine_dies_with_its_controller() {
    let mut controller = Controller::start("candle");
    controller.kill();
    let before = now();
    until_gone(controller.engine).await;
    assert!(before.elapsed() < SOON);
}

#[tokio::test]
async fn a_key_in_the_controllers_environment_does_not_reach_an_engine() {
    let controller = Controller::start("candle");
    let environment = std::fs::read(format!("/proc/{}/environ", controller.engine)).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    assert!(environment.contains("MODEL_POOL_ENGINE="), "{environment}");
    assert!(!environment.contains("do-not-leak"));
    assert!(!environment.contains(SECRET));
}
