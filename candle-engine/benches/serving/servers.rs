//! The processes to measure: start, readiness and shutdown of each.

use crate::client::now;
use crate::random_model::CONTEXT_TOKENS;
use candle_engine::{EngineOptions, Listen, NumberTypes, Speculation, TokenBudgets, serve};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Maximum number of simultaneous requests every server is configured for.
pub const AT_ONCE: usize = 16;

/// Total cache capacity of a server, in tokens.
const CACHE_TOKENS: usize = AT_ONCE * 1024;

const READY_WITHIN: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Engine {
    Ours,
    Llama,
    Transformers,
}

impl Engine {
    pub const ALL: [Self; 3] = [Self::Ours, Self::Llama, Self::Transformers];

    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Llama => "llama",
            Self::Transformers => "transformers",
        }
    }

    /// The program's path, if it is built.
    pub fn program(self) -> Result<PathBuf, String> {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
        let (variable, path, how) = match self {
            Self::Ours => return std::env::current_exe().map_err(|error| error.to_string()),
            Self::Llama => (
                "LLAMA_SERVER",
                "llama-native/bin/llama-server",
                ".ci/llama-server native",
            ),
            Self::Transformers => (
                "TRANSFORMERS_PYTHON",
                "transformers/bin/python",
                ".ci/transformers",
            ),
        };
        let path = std::env::var_os(variable).map_or_else(|| target.join(path), PathBuf::from);
        if path.is_file() {
            Ok(path)
        } else {
            Err(format!("{} is not there; {how} makes it", path.display()))
        }
    }
}

/// A model in one form.
#[derive(Debug, Clone)]
pub struct Model {
    pub path: PathBuf,
    /// The quantisation this crate's engine applies on loading.
    pub quantization: Option<String>,
    /// Bytes of weights read per token.
    pub bytes_per_token: u64,
}

/// Serves one model in this process, started as a child of the benchmark: PATH PORT THREADS SPECULATES [QUANTIZATION].
pub fn serve_ours(words: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let [path, port, threads, speculates, quantization @ ..] = words else {
        return Err("engine PATH PORT THREADS SPECULATES [QUANTIZATION]".into());
    };
    let quantization = quantization.first().map(|form| form.parse()).transpose()?;
    let chosen = |name: &str| std::env::var(name).unwrap_or_else(|_| "auto".to_owned());
    let listen = Listen::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse()?)));
    let options = EngineOptions {
        context_tokens: CONTEXT_TOKENS,
        concurrency: AT_ONCE,
        quantization,
        numbers: NumberTypes {
            products: chosen("DTYPE").parse()?,
            kv_cache: chosen("KV_CACHE_DTYPE").parse()?,
        },
        threads: Some(threads.parse()?),
        budgets: TokenBudgets {
            total: Some(CACHE_TOKENS),
            ..TokenBudgets::default()
        },
        speculation: if speculates.parse::<bool>()? {
            Speculation::default()
        } else {
            Speculation::OFF
        },
        ..EngineOptions::new(path, "model", listen)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(serve(options, std::future::pending()))?;
    Ok(())
}

/// An HTTP server process, killed on drop.
pub struct Server {
    pub engine: Engine,
    pub address: SocketAddr,
    pub started: Instant,
    child: Child,
}

impl Server {
    /// Starts the server without waiting. This crate's engine proposes tokens if `speculates`.
    pub fn start(
        engine: Engine,
        model: &Model,
        threads: usize,
        speculates: bool,
    ) -> Result<Self, String> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| listener.local_addr())
            .map_err(|error| error.to_string())?;
        let (port, threads) = (address.port().to_string(), threads.to_string());
        let mut command = Command::new(engine.program()?);
        match engine {
            Engine::Ours => {
                command.arg("engine").arg(&model.path).args([
                    &port,
                    &threads,
                    &speculates.to_string(),
                ]);
                command.args(&model.quantization);
            }
            _ => {
                let cache = CACHE_TOKENS.to_string();
                let at_once = AT_ONCE.to_string();
                command.arg("--model").arg(&model.path).args([
                    "--host",
                    "127.0.0.1",
                    "--port",
                    &port,
                ]);
                command.args([
                    "--threads",
                    &threads,
                    "--threads-batch",
                    &threads,
                    "--ctx-size",
                    &cache,
                ]);
                command.args([
                    "--parallel",
                    &at_once,
                    "--kv-unified",
                    "--cache-ram",
                    "0",
                    "--no-webui",
                ]);
            }
        }
        let log = std::env::temp_dir().join(format!("serving-{}-{port}.log", engine.name()));
        let file =
            std::fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let _ = std::fs::remove_file(&log);
        let started = now();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(if std::env::var_os("SHOW_SERVERS").is_some() {
                Stdio::inherit()
            } else {
                file.into()
            })
            .spawn()
            .map_err(|error| format!("{} does not start: {error}", engine.name()))?;
        Ok(Self {
            engine,
            address,
            started,
            child,
        })
    }

    /// Waits until `/health` returns 200.
    pub fn wait(&mut self) -> Result<Duration, String> {
        loop {
            if self.is_ready().unwrap_or(false) {
                return Ok(self.started.elapsed());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!(
                    "{} ended with {status}; SHOW_SERVERS=1 shows what it says",
                    self.engine.name()
                ));
            }
            if self.started.elapsed() > READY_WITHIN {
                return Err(format!(
                    "{} was not ready within {READY_WITHIN:?}",
                    self.engine.name()
                ));
            }
            sleep(Duration::from_millis(2));
        }
    }

    fn is_ready(&self) -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: engine\r\nconnection: close\r\n\r\n")?;
        let mut said = [0; 12];
        stream.read_exact(&mut said)?;
        Ok(said.ends_with(b" 200"))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A greedy request for exactly `tokens` tokens after a prompt.
    pub fn request(&self, prompt: &[u32], tokens: usize) -> Value {
        let mut body = json!({
            "model": "model", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": true,
            "stream": true, "stream_options": {"include_usage": true},
        });
        if self.engine == Engine::Llama {
            body["cache_prompt"] = json!(false);
        }
        body
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `transformers` in a separate process that reads requests line by line.
pub struct Transformers {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub ready: Duration,
}

/// The script's report on one batch, in seconds since it started.
#[derive(Debug, serde::Deserialize)]
pub struct BatchReport {
    pub first: f64,
    pub last: f64,
    pub tokens: usize,
}

impl Transformers {
    pub fn start(model: &Path, threads: usize) -> Result<Self, String> {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/serving/with_transformers.py");
        let started = now();
        let mut child = Command::new(Engine::Transformers.program()?)
            .arg(script)
            .arg(model)
            .arg(threads.to_string())
            .env("HF_HUB_OFFLINE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(if std::env::var_os("SHOW_SERVERS").is_some() {
                Stdio::inherit()
            } else {
                Stdio::null()
            })
            .spawn()
            .map_err(|error| format!("transformers does not start: {error}"))?;
        let input = child.stdin.take().ok_or("no standard input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let mut server = Self {
            child,
            input,
            output,
            ready: Duration::ZERO,
        };
        server.line()?;
        server.ready = started.elapsed();
        Ok(server)
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => Err("transformers ended; SHOW_SERVERS=1 shows what it says".to_owned()),
            Ok(_) => Ok(line),
            Err(error) => Err(error.to_string()),
        }
    }

    pub fn generate(&mut self, prompts: &[Vec<u32>], tokens: usize) -> Result<BatchReport, String> {
        let request = json!({"prompts": prompts, "tokens": tokens});
        writeln!(self.input, "{request}").map_err(|error| error.to_string())?;
        self.input.flush().map_err(|error| error.to_string())?;
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|error| format!("{error} in {line}"))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Transformers {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
