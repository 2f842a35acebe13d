//! The stub's command line. An unknown flag is an error.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::gpu::Gpu;
use crate::hostile::Hostile;
use crate::script::Script;

/// Behaviour of the stub.
pub struct Flags {
    /// `--port N` on 127.0.0.1; with 0 it takes any port and prints it.
    pub port: u16,
    /// `--socket PATH`, instead of a port.
    pub socket: Option<PathBuf>,
    /// `--model NAME`, as in the response of `/v1/models`.
    pub model: String,
    /// `--listen-after-ms N`: time before it listens.
    pub listen_after: Duration,
    /// `--ready-after-ms N`: time from the start until it is ready; before, 503 with a growing percentage.
    pub ready_after: Duration,
    /// `--exit-after-ms N`: counted from listening; ends with `--exit-code N`.
    pub exit_after: Option<Duration>,
    pub exit_code: i32,
    /// `--ignore-term`: ignores SIGTERM.
    pub ignore_term: bool,
    /// `--term-exit-code N`: catches SIGTERM and exits normally, as real engines do.
    pub term_exit_code: Option<i32>,
    /// `--spawn-grandchild`: starts a process that sleeps, and prints `grandchild PID`.
    pub spawn_grandchild: bool,
    /// `--stderr TEXT`, any number of times.
    pub stderr: Vec<String>,
    /// `--print-env NAME`, any number of times: prints `NAME=value` or `NAME is not set`.
    pub print_env: Vec<String>,
    /// `--print-header NAME`, any number of times: prints `NAME: value` for each request that has it.
    pub print_headers: Vec<String>,
    /// `--hang-health`: accepts `GET /health` and never answers.
    pub hang_health: bool,
    /// `--allocate-mib N`: memory to allocate and touch.
    pub allocate_mib: usize,
    /// `--tokens N`: tokens per response.
    pub tokens: usize,
    /// `--token-ms N`: the pause before each token.
    pub token_pause: Duration,
    /// `--fail-load TEXT`: after `--ready-after-ms`, prints the text to stderr and exits with 1.
    pub fail_load: Option<String>,
    /// `--crash-mid-stream N`: aborts once a response has N tokens and continues or ends.
    pub crash_mid_stream: Option<usize>,
    /// `--require-key KEY`: requests without it get 401.
    pub key: Option<String>,
    /// The worst faults and their flags.
    pub hostile: Hostile,
    /// Scripted output and its flags.
    pub script: Script,
    /// Memory on fake GPUs and its flags.
    pub gpu: Gpu,
    /// Set by the word `engine`.
    pub end_with_stdin: bool,
    started: Instant,
}

impl Flags {
    #[expect(clippy::disallowed_methods, reason = "the stub is a separate program")]
    pub fn read(words: Vec<String>) -> Result<Flags, String> {
        let mut flags = Flags {
            port: 0,
            socket: None,
            model: "stub".to_owned(),
            listen_after: Duration::ZERO,
            ready_after: Duration::ZERO,
            exit_after: None,
            exit_code: 0,
            ignore_term: false,
            term_exit_code: None,
            spawn_grandchild: false,
            stderr: Vec::new(),
            print_env: Vec::new(),
            print_headers: Vec::new(),
            hang_health: false,
            allocate_mib: 0,
            tokens: 5,
            token_pause: Duration::ZERO,
            fail_load: None,
            crash_mid_stream: None,
            key: None,
            hostile: Hostile::default(),
            script: Script::default(),
            gpu: Gpu::default(),
            end_with_stdin: false,
            started: Instant::now(),
        };
        flags.take(words)?;
        Ok(flags)
    }

    /// From 0 to 100; 100 is ready.
    pub fn load_percent(&self) -> u8 {
        let passed = self.started.elapsed();
        if passed >= self.ready_after {
            return 100;
        }
        let share = passed.as_secs_f64() / self.ready_after.as_secs_f64();
        (share * 100.0).min(99.0) as u8
    }

    /// The Unix time at which loading ends, or now if it is over.
    pub fn ready_at(&self) -> Duration {
        let left = self.ready_after.saturating_sub(self.started.elapsed());
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.unwrap_or_default() + left
    }

    fn take(&mut self, words: Vec<String>) -> Result<(), String> {
        let mut words = words.into_iter();
        while let Some(name) = words.next() {
            let mut value = || words.next().ok_or(format!("{name} requires a value"));
            match name.as_str() {
                "engine" => self.end_with_stdin = true,
                "--port" => self.port = number(&name, value()?)?,
                "--socket" => self.socket = Some(value()?.into()),
                "--model" | "--model-name" => self.model = value()?,
                "--listen-after-ms" => self.listen_after = milliseconds(&name, value()?)?,
                "--ready-after-ms" => self.ready_after = milliseconds(&name, value()?)?,
                "--exit-after-ms" => self.exit_after = Some(milliseconds(&name, value()?)?),
                "--exit-code" => self.exit_code = number(&name, value()?)?,
                "--term-exit-code" => self.term_exit_code = Some(number(&name, value()?)?),
                "--ignore-term" => self.ignore_term = true,
                "--spawn-grandchild" => self.spawn_grandchild = true,
                "--stderr" => self.stderr.push(value()?),
                "--print-env" => self.print_env.push(value()?),
                "--print-header" => self.print_headers.push(value()?),
                "--crash-mid-stream" => self.crash_mid_stream = Some(number(&name, value()?)?),
                "--require-key" => self.key = Some(value()?),
                "--hang-health" => self.hang_health = true,
                "--allocate-mib" => self.allocate_mib = number(&name, value()?)?,
                "--tokens" => self.tokens = number(&name, value()?)?,
                "--token-ms" => self.token_pause = milliseconds(&name, value()?)?,
                "--fail-load" => self.fail_load = Some(value()?),
                "--model-dir" => {
                    let file = PathBuf::from(value()?).join("stub-args");
                    let text = std::fs::read_to_string(file).unwrap_or_default();
                    self.take(text.lines().map(str::to_owned).collect())?;
                }
                // Flags of the embedded engine, which have no effect here.
                "--context"
                | "--concurrency"
                | "--threads"
                | "--tokenizer-workers"
                | "--num-speculative-tokens"
                | "--prompt-lookup-max"
                | "--prompt-lookup-min"
                | "--dtype"
                | "--kv-cache-dtype"
                | "--device" => drop(value()?),
                _ if self.gpu.take(&name, &mut value)? => {}
                _ if self.script.take(&name, &mut value)? => {}
                _ if self.hostile.take(&name, &mut value)? => {}
                _ => return Err(format!("unknown flag {name}")),
            }
        }
        Ok(())
    }
}

pub fn number<T: std::str::FromStr>(name: &str, value: String) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{name} {value} is not a number"))
}

pub fn milliseconds(name: &str, value: String) -> Result<Duration, String> {
    number(name, value).map(Duration::from_millis)
}
