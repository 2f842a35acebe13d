//! The service under test: its numbered processes, their kills and takeovers.
//! One file because a single table holds the processes of a service.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, SystemTime};

use chrono::{TimeDelta, Utc};
use rand::Rng;
use rand::rngs::StdRng;

use super::world::{World, add, call, lock};
use support::stub::stub_engine;

/// Priority 0; not all of them fit.
pub const USER_MODELS: [&str; 4] = ["user-a", "user-b", "user-c", "user-d"];
/// Priority 1; all of them fit together.
pub const ADMIN_MODELS: [&str; 3] = ["admin-a", "admin-b", "admin-c"];
/// Time limit of a start on a busy machine.
const START_MAX: Duration = Duration::from_secs(60);
/// Time limit of a shutdown: streams drain, engines stop.
const END_MAX: Duration = Duration::from_secs(60);
/// Maximum time that a kill or takeover waits for its trigger.
const MOMENT_MAX: Duration = Duration::from_secs(2);

pub struct Service {
    folder: tempfile::TempDir,
    child: Child,
    /// Number of the child.
    number: u64,
    /// Number of starts.
    count: u64,
    /// Processes that were replaced and may still have streams.
    old: Vec<(u64, Child)>,
    /// The next process's times for the start and end of the evening.
    evening: Option<(String, String)>,
}

/// Waits for the condition; false after the time limit.
fn comes(within: Duration, mut so: impl FnMut() -> bool) -> bool {
    let began = SystemTime::now();
    while !so() {
        if began.elapsed().unwrap_or_default() > within {
            return false;
        }
        thread::park_timeout(Duration::from_millis(5));
    }
    true
}

fn model_file(name: &str, priority: u32, keep_hot: &str) -> String {
    let words = [
        &*stub_engine().display().to_string(),
        "--port",
        "{{ port }}",
        "--tokens",
        "100000",
        "--token-ms",
        "20",
        "--ready-after-ms",
        "150",
    ]
    .map(|word| format!("{word:?}"));
    format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  listen: port\n  command: [{}]\npool_config: {{memory_gib: 0.5, priority: {priority}, keep_hot: {keep_hot}, max_requests: 8}}\n",
        words.join(", ")
    )
}

impl Service {
    pub fn start() -> (Service, Arc<World>) {
        let folder = tempfile::tempdir().unwrap();
        let models = folder.path().join("models");
        fs::create_dir(&models).unwrap();
        let all = USER_MODELS.iter().map(|name| (name, 0, "3s"));
        for (name, priority, keep_hot) in all.chain(ADMIN_MODELS.iter().map(|name| (name, 1, "1h")))
        {
            let text = model_file(name, priority, keep_hot).replace(", max_requests: 8", "");
            fs::write(models.join(format!("{name}.yaml")), text).unwrap();
        }
        // The same port after each start, which lets clients find it.
        let probe = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = probe.local_addr().unwrap();
        drop(probe);
        let config = format!(
            "server: {{listen: {address}, keep_alive_comment: 200ms}}\nstate: {{dir: {:?}}}\ncatalog: {{models_dir: {models:?}}}\n{}",
            folder.path().join("data"),
            "inventory: {provider: fixed, devices: [{name: gpu0, memory: 2200MiB}, {name: gpu1, memory: 800MiB}]}\npool: {on_restart: adopt, adopt_within: 2m, preempt_drain: 500ms}\nauth: {inference: key}\n",
        );
        fs::write(folder.path().join("config.yaml"), config).unwrap();
        let world = Arc::new(World::new(address));
        let child = spawn(&folder, 1, &[], &None);
        world.started.store(1, Ordering::SeqCst);
        let mut service = Service {
            folder,
            child,
            number: 1,
            count: 1,
            old: Vec::new(),
            evening: None,
        };
        service.serves(&world);
        let key = fs::read_to_string(service.folder.path().join("data/admin.key")).unwrap();
        *lock(&world.admin_key) = key.trim().to_owned();
        let made = world.admin(
            "POST",
            "/llm/admin/keys",
            r#"{"name":"users","role":"user"}"#,
        );
        let (status, made) = made.unwrap();
        assert_eq!(status, 200, "{made}");
        *lock(&world.user_key) = made["key"].as_str().unwrap().to_owned();
        (service, world)
    }

    fn log_of(&self, number: u64) -> PathBuf {
        self.folder.path().join(format!("log.{number}"))
    }

    fn spawn(&mut self, world: &World, words: &[&str]) -> Child {
        self.count += 1;
        // Set before the process can have the socket.
        world.started.store(self.count, Ordering::SeqCst);
        spawn(&self.folder, self.count, words, &self.evening)
    }

    /// Waits until the current process serves; it must.
    fn serves(&mut self, world: &World) {
        let ended = self.serves_or_ends(world);
        assert!(
            ended.is_none(),
            "process {} did not come to serve: {ended:?}\n{}",
            self.number,
            fs::read_to_string(self.log_of(self.number)).unwrap_or_default()
        );
    }

    fn serves_or_ends(&mut self, world: &World) -> Option<ExitStatus> {
        let log = self.log_of(self.number);
        let mut ended = None;
        let came = comes(START_MAX, || {
            ended = self.child.try_wait().unwrap();
            let says = || fs::read_to_string(&log).is_ok_and(|log| log.contains("serving http"));
            let ready = || {
                call(world.address, "GET", "/llm/ready", "", "")
                    .is_ok_and(|(status, ..)| status == 200)
            };
            ended.is_some() || says() && ready()
        });
        assert!(
            came,
            "process {} neither serves nor ends\n{}",
            self.number,
            fs::read_to_string(&log).unwrap_or_default()
        );
        if ended.is_none() {
            world.serving.store(self.number, Ordering::SeqCst);
        }
        ended
    }

    /// `kill -9` of the process that serves, or is about to serve.
    fn kill(&mut self, world: &World) {
        lock(&world.killed).push(self.number);
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        add(&world.tally.kills);
    }

    fn starts(&mut self, world: &World) {
        self.replaces(world);
        self.serves(world);
    }

    fn replaces(&mut self, world: &World) {
        self.child = self.spawn(world, &[]);
        self.number = self.count;
    }

    fn begins_takeover(&mut self, world: &World) {
        let old = self.number;
        let new = self.spawn(world, &["serve", "--takeover"]);
        self.number = self.count;
        self.old
            .push((old, std::mem::replace(&mut self.child, new)));
    }

    /// Processes without streams exit on their own.
    fn bury(&mut self) {
        self.old
            .retain_mut(|(_, child)| child.try_wait().unwrap().is_none());
    }

    pub fn blow(&mut self, world: &World, random: &mut StdRng, nth: u64) {
        self.bury();
        self.wait_for_moment(world, random);
        match random.random_range(0..100) {
            _ if nth % 25 == 3 => self.evening(world, random),
            0..35 => {
                self.kill(world);
                self.starts(world);
            }
            35..65 => {
                self.begins_takeover(world);
                self.serves(world);
                add(&world.tally.takeovers);
            }
            65..75 => self.killed_while_it_starts(world, random),
            75..85 => self.killed_while_it_takes_over(world, random),
            85..92 => self.killed_while_it_hands_over(world, random),
            _ => {
                // Two takeovers, then the last process is killed: streams of the first process continue.
                for _ in 0..2 {
                    self.begins_takeover(world);
                    self.serves(world);
                    add(&world.tally.takeovers);
                }
                self.kill(world);
                self.starts(world);
            }
        }
    }

    /// Waits for the middle of a load, a drain or a change, or a random time.
    fn wait_for_moment(&self, world: &World, random: &mut StdRng) {
        let is_in = |state: &str| {
            let shown = world.admin("GET", "/llm/admin/models", "");
            let shown = shown.map(|(_, shown)| shown).unwrap_or_default();
            let models = shown["models"].as_array().cloned().unwrap_or_default();
            models.iter().any(|model| model["state"] == state)
        };
        let changing = || world.changing.load(Ordering::SeqCst);
        match random.random_range(0..5) {
            0 => drop(comes(MOMENT_MAX, || is_in("loading"))),
            1 => drop(comes(MOMENT_MAX, || is_in("draining"))),
            2 | 3 => {
                comes(MOMENT_MAX, changing);
                let micros = random.random_range(0..6_000);
                thread::park_timeout(Duration::from_micros(micros));
            }
            _ => {}
        }
    }

    fn killed_while_it_starts(&mut self, world: &World, random: &mut StdRng) {
        self.kill(world);
        for _ in 0..random.random_range(1..3) {
            self.replaces(world);
            world.pause(random.random_range(0..1_500));
            self.kill(world);
        }
        self.starts(world);
    }

    fn killed_while_it_takes_over(&mut self, world: &World, random: &mut StdRng) {
        self.begins_takeover(world);
        world.pause(random.random_range(0..1_500));
        add(&world.outages);
        self.kill(world);
        add(&world.tally.broken_takeovers);
        let (number, mut old) = self.old.pop().expect("just taken over from");
        // It continues unaffected, or ends because no process takes over.
        let responses = || {
            call(world.address, "GET", "/llm/ready", "", "").is_ok_and(|(status, ..)| status == 200)
        };
        let mut ended = false;
        let settled = comes(START_MAX, || {
            ended = old.try_wait().unwrap().is_some();
            ended || responses()
        });
        if settled && !ended {
            self.child = old;
            self.number = number;
            add(&world.outages);
            return;
        }
        if !ended {
            self.old.push((number, old));
        }
        self.starts(world);
        add(&world.outages);
    }

    fn killed_while_it_hands_over(&mut self, world: &World, random: &mut StdRng) {
        self.begins_takeover(world);
        world.pause(random.random_range(0..1_500));
        let (number, mut old) = self.old.pop().expect("just taken over from");
        lock(&world.killed).push(number);
        old.kill().unwrap();
        old.wait().unwrap();
        add(&world.tally.kills);
        add(&world.tally.broken_takeovers);
        // The state is free in any case.
        if self.serves_or_ends(world).is_some() {
            self.starts(world);
        }
    }

    /// With all changes paused: a cleanup that is interrupted by a kill or a takeover. Every replica from before is gone afterwards
    /// in any case.
    fn evening(&mut self, world: &World, random: &mut StdRng) {
        world.quiet.store(true, Ordering::SeqCst);
        let all_wait = comes(Duration::from_secs(90), || {
            world.waiting.load(Ordering::SeqCst) == 2
        });
        assert!(all_wait, "the administrators do not come to rest");
        let load = r#"{"model":"admin-a","wait":true}"#;
        let loaded = world.admin("POST", "/llm/admin/load", load);
        let before = loaded
            .as_ref()
            .map(|(_, status)| status["ready_replicas"][0]["replica"].clone());
        let moment = |ahead: i64| {
            (Utc::now() + TimeDelta::seconds(ahead))
                .format("%S %M %H * * *")
                .to_string()
        };
        self.evening = Some((moment(8), moment(1_800)));
        let stream = thread::spawn({
            let (address, key) = (world.address, world.lock_key());
            let body = super::users::body("admin-a", 1_500, true);
            move || call(address, "POST", "/v1/chat/completions", &body, &key)
        });
        self.kill(world);
        let _ = stream.join();
        self.starts(world);
        // A stream prolongs the cleanup.
        let stream = thread::spawn({
            let (address, key) = (world.address, world.lock_key());
            let body = super::users::body("admin-a", 1_500, true);
            move || call(address, "POST", "/v1/chat/completions", &body, &key)
        });
        let state = |world: &World| {
            let shown = world.admin("GET", "/llm/admin/models?model=admin-a", "");
            shown
                .map(|(_, list)| list["models"][0].clone())
                .unwrap_or_default()
        };
        let drains = comes(Duration::from_secs(30), || {
            state(world)["state"] == "draining"
        });
        if random.random() {
            self.kill(world);
            self.starts(world);
        } else {
            self.begins_takeover(world);
            self.serves(world);
            add(&world.tally.takeovers);
        }
        let gone = comes(Duration::from_secs(60), || {
            let shown = state(world);
            let replicas = shown["replicas"].as_array().cloned();
            let is_old = |replica: &serde_json::Value| Ok(&replica["replica"]) == before.as_ref();
            replicas.is_some_and(|all| !all.iter().any(is_old)) && shown["wished_replicas"] == 0
        });
        match (drains, gone) {
            (true, true) => add(&world.tally.evenings),
            _ => world.lost(format!(
                "an evening is not finished (its cleanup drained: {drains}): {}; it began with {before:?}",
                state(world)
            )),
        }
        let _ = stream.join();
        self.evening = None;
        self.kill(world);
        self.starts(world);
        world.quiet.store(false, Ordering::SeqCst);
    }

    /// Ends the service normally; no process is left.
    pub fn end(&mut self, world: &World) {
        let pid = self.child.id().to_string();
        let signalled = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(signalled.success());
        let ended = comes(END_MAX, || self.child.try_wait().unwrap().is_some());
        if !ended {
            world.lost("the service does not end on SIGTERM".to_owned());
        }
        let alone = comes(END_MAX, || {
            self.bury();
            self.old.is_empty()
        });
        if !alone {
            let numbers: Vec<u64> = self.old.iter().map(|(number, _)| *number).collect();
            world.lost(format!(
                "processes that were taken over from do not end: {numbers:?}"
            ));
        }
        if !comes(Duration::from_secs(10), || self.left().is_empty()) {
            world.lost(format!("left behind: {:?}", self.left()));
        }
    }

    /// Guardians run in the service's folder, and engines and services have paths in it as arguments.
    fn left(&self) -> Vec<String> {
        let folder = self.folder.path().display().to_string();
        let mut left = Vec::new();
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let path = process.path();
            let works_here =
                fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd.starts_with(&folder));
            let words = fs::read(path.join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            let environment = fs::read(path.join("environ")).unwrap_or_default();
            let marked = String::from_utf8_lossy(&environment).contains(&folder);
            if works_here || words.contains(&folder) || marked {
                left.push(format!("{}: {words}", process.file_name().display()));
            }
        }
        left
    }

    /// Keeps the processes' logs after a storm with faults.
    pub fn keep_logs(&self) -> String {
        let to = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kill_storm");
        let _ = fs::remove_dir_all(&to);
        let _ = fs::create_dir_all(&to);
        for number in 1..=self.count {
            let _ = fs::copy(self.log_of(number), to.join(format!("log.{number}")));
        }
        to.display().to_string()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for (_, child) in &mut self.old {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Ends engines that wait for another controller.
        let journal = fs::read_dir(self.folder.path().join("data/engines"));
        for entry in journal.into_iter().flatten().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let record: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            let guardian = record["guardian"]["pid"].to_string();
            let _ = Command::new("kill").args(["-TERM", &guardian]).status();
        }
    }
}

fn spawn(
    folder: &tempfile::TempDir,
    number: u64,
    words: &[&str],
    evening: &Option<(String, String)>,
) -> Child {
    let folder = folder.path();
    let log = fs::File::create(folder.join(format!("log.{number}"))).unwrap();
    let (cleanup, reopen) = evening
        .clone()
        .unwrap_or(("null".to_owned(), "null".to_owned()));
    Command::new(env!("CARGO_BIN_EXE_model-pool"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(words)
        .args(["--config".as_ref(), folder.join("config.yaml").as_os_str()])
        .env("NO_COLOR", "1")
        // Part of the environment of every process it starts.
        .env("KILL_STORM", folder)
        .env("MODEL_POOL__EVENING__CLEANUP", cleanup)
        .env("MODEL_POOL__EVENING__REOPEN", reopen)
        .env("MODEL_POOL__EVENING__TIMEZONE", "UTC")
        .env("MODEL_POOL__EVENING__DRAIN", "10s")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}
