//! Engine starts until readiness or a failure with its reason, and an engine's environment.

use std::time::Duration;

use model_pool::engine::{
    CandleDevice, CandleProgram, DeviceKind, Endpoint, Listen, Program, Report,
};
use model_pool::pool::ReplicaId;

use crate::replica::{RunningReplica, command, launch, now};
use crate::{on_socket, shell, stub};
use support::stub::stub_engine;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn an_engine_leads_its_own_session_and_group() {
    let mut engine = RunningReplica::start(stub(&[]));
    let (pid, _) = engine.started().await;
    let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
    assert_eq!(nix::unistd::getsid(Some(pid)), Ok(pid));
    assert_eq!(nix::unistd::getpgid(Some(pid)), Ok(pid));
}

#[tokio::test]
async fn a_crash_during_the_load_reports_the_engines_last_output() {
    let words = "CUDA out of memory: tried 2.00 GiB";
    let mut engine = RunningReplica::start(stub(&[
        "--stderr",
        "line one",
        "--stderr",
        "",
        "--fail-load",
        words,
    ]));
    let exit = engine.exited().await;
    assert!(!exit.requested);
    assert_eq!(exit.status, "exit status 1");
    assert_eq!(exit.last_output, words);
    assert!(
        !engine
            .seen
            .iter()
            .any(|report| matches!(report, Report::Ready { .. }))
    );
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_named() {
    let mut engine = RunningReplica::start(command(&["no-such-engine", "--port", "{{ port }}"]));
    let exit = engine.exited().await;
    assert_eq!(exit.status, "not started");
    assert!(
        exit.last_output.contains("no-such-engine"),
        "{}",
        exit.last_output
    );
    assert!(
        exit.last_output.contains("No such file"),
        "{}",
        exit.last_output
    );
    assert_eq!(engine.seen.len(), 1, "nothing but the exit");
}

#[tokio::test]
async fn a_missing_working_directory_is_not_blamed_on_the_program() {
    let mut program = stub(&[]);
    if let Program::Command(program) = &mut program {
        program.working_dir = Some("/no/such/place".into());
    }
    let exit = RunningReplica::start(program).exited().await;
    assert!(
        exit.last_output.contains("/no/such/place"),
        "{}",
        exit.last_output
    );
}

/// Delay from readiness to its report. The best of several tries counts because other tests run in parallel. The stub prints the
/// time of readiness in microseconds of Unix time.
async fn readiness_is_noticed_within(bound: Duration, tries: u32, program: impl Fn() -> Program) {
    let mut best = Duration::MAX;
    for _ in 0..tries {
        let mut engine = RunningReplica::start(program());
        let seen = engine.ready_at().await;
        let line = engine.line("ready ").await;
        let ready = Duration::from_micros(line.rsplit(' ').next().unwrap().parse().unwrap());
        best = best.min(seen.saturating_sub(ready));
        engine.stop(LONG).await;
        if best < bound {
            break;
        }
    }
    println!("readiness was noticed after {best:?}");
    assert!(best < bound, "{best:?}");
}

/// Waits until every guardian of this test sleeps without work.
async fn until_a_guardian_waits() {
    let own = std::process::id().to_string();
    let is_busy = |process: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        let words = std::fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned());
        let fields = fields.unwrap_or_default();
        let mut fields = fields.split(' ');
        let (state, parent) = (fields.next(), fields.next());
        // A process of another test that ended without being reaped no longer counts.
        parent == Some(&own)
            && state != Some("Z")
            && (matches!(state, Some("R" | "D")) || !words.contains("\0guardian\0"))
    };
    for _ in 0..3 {
        while std::fs::read_dir("/proc").unwrap().flatten().any(is_busy) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_launch_takes_one_message_to_a_waiting_guardian() {
    let mut best = Duration::MAX;
    // Other tests run in parallel.
    for _ in 0..60 {
        let home = tempfile::tempdir().unwrap();
        let mut engine =
            RunningReplica::prepare(launch(shell("exec sleep 600"), home.path()), home);
        engine.guardians.prepare().await;
        until_a_guardian_waits().await;
        let before = now();
        engine.go();
        engine.started().await;
        best = best.min(before.elapsed());
        engine.stop(Duration::ZERO).await;
        if best < SOON {
            break;
        }
    }
    println!("an engine was started after {best:?}");
    assert!(best < SOON, "{best:?}");
}

const SOON: Duration = Duration::from_millis(10);
const LATE: Duration = Duration::from_millis(50);

#[tokio::test]
async fn an_engine_that_begins_to_listen_on_a_port_is_ready_within_milliseconds() {
    let on_port = || stub(&["--listen-after-ms", "150"]);
    readiness_is_noticed_within(SOON, 40, on_port).await;
}

#[tokio::test]
async fn an_engine_that_begins_to_listen_on_a_socket_is_ready_within_milliseconds() {
    let on_socket = || on_socket(&["--listen-after-ms", "150"]);
    readiness_is_noticed_within(SOON, 40, on_socket).await;
}

#[tokio::test]
async fn an_engine_that_reports_loading_is_ready_within_milliseconds() {
    let loads = || stub(&["--ready-after-ms", "150"]);
    readiness_is_noticed_within(SOON, 40, loads).await;
}

#[tokio::test]
async fn a_load_of_more_than_a_second_is_detected_almost_as_fast() {
    let loads = || on_socket(&["--ready-after-ms", "1200"]);
    readiness_is_noticed_within(LATE, 10, loads).await;
}

#[tokio::test]
async fn the_embedded_engine_reports_its_load_over_a_socket() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("stub-args"), "--ready-after-ms\n1000\n").unwrap();
    let mut launch = launch(
        Program::Candle(CandleProgram {
            context_tokens: 256,
            concurrency: 2,
            threads: Some(1),
            tokenizer_workers: Some(1),
            ..CandleProgram::new(stub_engine(), home.path().to_owned(), CandleDevice::Cpu)
        }),
        home.path(),
    );
    launch.replica = ReplicaId(77);
    let mut engine = RunningReplica::prepare(launch, home);
    engine.go();
    let (_, endpoint) = engine.started().await;
    let Endpoint::Unix(socket) = endpoint else {
        panic!("{endpoint}");
    };
    let (stage, percent) = engine.progress().await;
    assert_eq!(stage, "weights");
    assert!(percent.is_some());
    engine.ready().await;
    assert!(socket.exists());
    engine.stop(LONG).await;
    assert!(!socket.exists(), "tidied up");
}

#[tokio::test]
async fn a_missing_health_route_is_reported_as_the_stage() {
    let mut program = stub(&[]);
    if let Program::Command(program) = &mut program {
        program.ready_path = "/helth".to_owned();
    }
    let mut engine = RunningReplica::start(program);
    let (stage, _) = engine.progress().await;
    assert_eq!(stage, "/helth answers 404");
}

#[tokio::test]
async fn a_port_taken_by_another_program_is_named() {
    let program = stub_engine();
    let script = format!(
        "read line < {{{{ model_path }}}}; exec {} --port {{{{ port }}}}",
        program.display()
    );
    let home = tempfile::tempdir().unwrap();
    let gate = home.path().join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut launch = launch(shell(&script), home.path());
    if let Program::Command(program) = &mut launch.program {
        program.model_path = Some(gate.clone());
    }
    let mut engine = RunningReplica::prepare(launch, home);
    engine.go();
    let (_, endpoint) = engine.started().await;
    let Endpoint::Tcp(address) = endpoint else {
        panic!("{endpoint}");
    };
    let _thief = std::net::TcpListener::bind(address).unwrap();
    let open = tokio::task::spawn_blocking(move || std::fs::write(gate, "go\n"));
    let exit = engine.exited().await;
    open.await.unwrap().unwrap();
    assert!(exit.last_output.contains("in use"), "{}", exit.last_output);
    let taken = format!("{address} was taken by another program");
    assert!(exit.last_output.contains(&taken), "{}", exit.last_output);
}

#[tokio::test]
async fn the_newest_log_lines_are_in_memory_and_all_lines_in_a_file() {
    let mut engine = RunningReplica::start(shell("seq 1 5000; printf 'unfinished' >&2; exit 3"));
    let exit = engine.exited().await;
    assert_eq!(exit.status, "exit status 3");
    assert_eq!(exit.last_output, "unfinished");
    let lines = engine.log.tail(usize::MAX);
    assert_eq!(lines.len(), 1_000);
    assert!(lines.iter().any(|line| &*line.text == "5000"));
    assert_eq!(lines.last().unwrap().sequence, 5_000);
    let file = engine.home.path().join("log/org--model-r1.log");
    let text = std::fs::read_to_string(file).unwrap();
    assert_eq!(text.lines().count(), 5_001);
    // The two pipes are read in any order; each pipe keeps its order.
    let first = text.lines().find(|line| line.contains(" stdout "));
    assert!(first.unwrap().ends_with(" stdout 1"));
}

#[tokio::test]
async fn a_flood_of_output_is_bounded_in_memory_and_on_disk_and_does_not_stop_the_engine() {
    let flood = "head -c 48000000 /dev/zero | tr '\\0' x | fold -w 8000; echo; echo done; exit 4";
    let mut engine = RunningReplica::start(shell(flood));
    let exit = engine.exited().await;
    assert_eq!(exit.status, "exit status 4");
    let lines = engine.log.tail(usize::MAX);
    assert_eq!(&*lines.last().unwrap().text, "done");
    let held: usize = lines.iter().map(|line| line.text.len()).sum();
    assert!(held <= 1 << 20, "{held} bytes in memory");
    let files = std::fs::read_dir(engine.home.path().join("log")).unwrap();
    let sizes: Vec<u64> = files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .collect();
    assert_eq!(sizes.len(), 2, "the file and its predecessor");
    assert!(sizes.iter().all(|size| *size <= 16 << 20), "{sizes:?}");
}

#[tokio::test]
async fn the_environment_contains_the_recipes_variables_and_none_of_the_pools() {
    let mut program = shell("env; exit 0");
    if let Program::Command(program) = &mut program {
        let value = "{{ model_name }} in {{ memory_bytes }}".to_owned();
        program.env.insert("WHAT".to_owned(), value);
    }
    let mut engine = RunningReplica::start(program);
    engine.exited().await;
    let lines = engine.log.tail(usize::MAX);
    let names: Vec<&str> = lines
        .iter()
        .filter_map(|line| Some(line.text.split_once('=')?.0))
        .collect();
    assert!(names.contains(&"PATH"), "{names:?}");
    assert!(
        !names.iter().any(|name| name.starts_with("CARGO")),
        "{names:?}"
    );
    assert!(
        lines
            .iter()
            .any(|line| &*line.text == "WHAT=org/model in 1073741824")
    );
}

#[tokio::test]
async fn an_engine_sees_only_its_own_devices() {
    let program = || stub(&["--print-env", "CUDA_VISIBLE_DEVICES"]);
    let mut engine = RunningReplica::start(program());
    assert_eq!(engine.line("CUDA").await, "CUDA_VISIBLE_DEVICES=");

    let home = tempfile::tempdir().unwrap();
    let mut launch = launch(program(), home.path());
    launch.devices[0].kind = DeviceKind::Nvidia;
    launch.devices[0].index = 3;
    let mut engine = RunningReplica::prepare(launch, home);
    engine.go();
    assert_eq!(engine.line("CUDA").await, "CUDA_VISIBLE_DEVICES=3");
}

#[tokio::test]
async fn an_engine_inherits_no_open_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    // A duplicated descriptor survives exec unless it is closed.
    let leak = nix::unistd::dup(&file).unwrap();
    let mut engine = RunningReplica::start(shell("ls -l /proc/$$/fd; exit 0"));
    engine.exited().await;
    drop(leak);
    let name = file.path().file_name().unwrap().to_str().unwrap();
    let lines = engine.log.tail(usize::MAX);
    assert!(
        lines.iter().any(|line| line.text.contains(" 2 -> pipe:")),
        "{lines:?}"
    );
    assert!(
        !lines.iter().any(|line| line.text.contains(name)),
        "{lines:?}"
    );
}

#[tokio::test]
async fn a_runtime_directory_that_others_can_enter_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("run");
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut launch = launch(stub(&[]), home.path());
    if let Program::Command(program) = &mut launch.program {
        program.listen = Listen::Socket;
    }
    let mut engine = RunningReplica::prepare(launch, home);
    engine.go();
    let exit = engine.exited().await;
    assert!(
        exit.last_output.contains("chmod 700"),
        "{}",
        exit.last_output
    );
}
