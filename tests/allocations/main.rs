//! Counts the program's memory allocations: for a plain chat on a warm connection, for a chat that is assembled from the engine's
//! stream, and for each token of a stream. The test runs the program's `serve` in a second process of itself, with a counting
//! allocator.

mod counting;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Parser;
use counting::{count_of, tell};
use model_pool::cli::Cli;
use support::double::vllm_double;
use support::machine::{GIB, Machine};
use support::service::wait_for;

/// Allocations for a plain chat. They include the account of the seat: inline, it would enlarge the future of each request.
const PER_PLAIN_CHAT_MAX: f64 = 21.0;
/// A token needs no allocation. When several arrive together, as on a busy machine, buffers grow and are freed afterwards: this
/// allows for up to ten such cases in total.
const PER_TOKEN_MAX: f64 = 0.25;
/// Allocations for a chat of two tokens that is assembled from a stream, and for each further token. The pieces of a stream grow
/// its text a few times.
const PER_ASSEMBLED_CHAT_MAX: f64 = 60.0;
const PER_ASSEMBLED_TOKEN_MAX: f64 = 0.25;

/// The pool sends `PLAIN` requests without a stream, and `ASSEMBLED` always requests as streams.
const PLAIN: &str = "m";
const ASSEMBLED: &str = "s";

/// Address to which the second process sends its count.
const SOCKET: &str = "ALLOCATIONS_SOCKET";
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of rounds; the lowest count is used. The rest of the program also allocates: during a request, the pool reads its gates
/// and publishes its state four times a second (some 30 allocations), and reads devices and engines every second. A round must
/// therefore be much shorter than a quarter of a second.
const ROUNDS: usize = 40;
const CHATS_PER_ROUND: u32 = 10;
/// Tokens of a short and a long stream. The engine pauses for a millisecond before each. A stream of very few tokens arrives
/// together with its head, which saves the memory of a longer stream.
const STREAM_TOKENS: [u32; 2] = [25, 65];

fn main() -> ExitCode {
    let word = std::env::args_os().nth(1);
    if word.as_ref().is_some_and(|word| word == guardian::COMMAND) {
        return guardian::run();
    }
    if let Some(socket) = std::env::var_os(SOCKET) {
        tell(Path::new(&socket));
        return match model_pool::serve::run(&Cli::parse().serve) {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => {
                eprintln!("{message}");
                ExitCode::FAILURE
            }
        };
    }
    // Some tools request the list of tests from every test program.
    if std::env::args().any(|word| word == "--list") {
        println!("allocations: test");
        return ExitCode::SUCCESS;
    }
    measure();
    ExitCode::SUCCESS
}

fn measure() {
    let program = Program::start();
    let mut client = Client::new(&program);
    let least = |mut once: Box<dyn FnMut() -> f64 + '_>| {
        (0..ROUNDS).map(|_| once()).fold(f64::INFINITY, f64::min)
    };
    let [plain, assembled] = [PLAIN, ASSEMBLED].map(|model| {
        let request = request(model, false, 2);
        let mut round = |times: u32| {
            let before = program.allocations();
            for _ in 0..times {
                client.ask(&request, "\"usage\"");
            }
            (program.allocations() - before) as f64 / f64::from(times)
        };
        round(50);
        least(Box::new(move || round(CHATS_PER_ROUND)))
    });
    let [few, many] = STREAM_TOKENS;
    let mut token = |model: &str, is_stream: bool| {
        let [short, long] = STREAM_TOKENS.map(|tokens| request(model, is_stream, tokens));
        let end = if is_stream { "[DONE]" } else { "\"usage\"" };
        let mut chat = |request: &str| {
            let before = program.allocations();
            client.ask(request, end);
            (program.allocations() - before) as f64
        };
        chat(&long);
        let of_short = least(Box::new(|| chat(&short)));
        let of_long = least(Box::new(|| chat(&long)));
        println!(
            "{model}, stream {is_stream}: {of_short:.0} for {few} tokens, {of_long:.0} for {many}"
        );
        (of_long - of_short) / f64::from(many - few)
    };
    let (streamed, merged) = (token(PLAIN, true), token(ASSEMBLED, false));
    println!(
        "a plain chat: {plain:.1} allocations, {assembled:.1} if assembled; a token: {streamed:.3}, {merged:.3} if assembled"
    );
    assert!(plain <= PER_PLAIN_CHAT_MAX, "{plain} for a plain chat");
    assert!(streamed <= PER_TOKEN_MAX, "{streamed} for a token");
    assert!(
        assembled <= PER_ASSEMBLED_CHAT_MAX,
        "{assembled} for an assembled chat"
    );
    assert!(
        merged <= PER_ASSEMBLED_TOKEN_MAX,
        "{merged} for a token of an assembled chat"
    );
}

fn request(model: &str, is_stream: bool, tokens: u32) -> String {
    let body = format!(
        r#"{{"model":"{model}","messages":[{{"role":"user","content":"Hi"}}],"stream":{is_stream},"max_tokens":{tokens}}}"#
    );
    let length = body.len();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// The second process, with two models that run vLLM's double.
struct Program {
    folder: tempfile::TempDir,
    child: Child,
    address: String,
}

impl Program {
    fn start() -> Program {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let machine = Machine::new(folder.path()).gpus(1, "NVIDIA H100 80GB HBM3", 80 * GIB);
        fs::create_dir(at("models")).expect("a new folder");
        for (name, form) in [(PLAIN, ""), (ASSEMBLED, ", plain_requests: false")] {
            let model = format!(
                "engine_config:\n  model_id: {name}\n  type: VLLMEngine\n  hf_model_id: org/m\n  fetch: engine\n  program: {:?}\n  max_total_tokens: 4096\n  env: {{MODEL_POOL_FAKE_NVML: {:?}, VLLM_DOUBLE_LOAD_MS: '20', VLLM_DOUBLE_TOKENS: '1000', VLLM_DOUBLE_TOKEN_MS: '1'}}\npool_config: {{memory_gib: 30{form}}}\n",
                vllm_double().display().to_string(),
                machine.state_file().display().to_string()
            );
            fs::write(at("models").join(format!("{name}.yaml")), model).expect("a new file");
        }
        let config = format!(
            "server: {{listen: \"127.0.0.1:0\"}}\nstate: {{dir: {:?}}}\ncatalog: {{models_dir: {:?}}}\ninventory: {{provider: nvml}}\nevening: {{cleanup: null, reopen: null}}\n",
            at("data"),
            at("models")
        );
        fs::write(at("config.yaml"), config).expect("a new file");
        let log = fs::File::create(at("log")).expect("a new file");
        let child = Command::new(std::env::current_exe().expect("this test"))
            .arg("--config")
            .arg(at("config.yaml"))
            .env(SOCKET, at("count.sock"))
            .env("NO_COLOR", "1")
            .env("MODEL_POOL_NVML_LIBRARY", machine.library())
            .env("MODEL_POOL__POOL__ON_RESTART", "stop")
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("a second process");
        let mut program = Program {
            folder,
            child,
            address: String::new(),
        };
        wait_for("the program to listen", || {
            let log = fs::read_to_string(program.folder.path().join("log")).expect("a log");
            let serving = log.split_once("serving http://");
            let address = serving.and_then(|(_, rest)| rest.split_once("/v1"));
            let address = address.map(|(address, _)| address.to_owned());
            program.address = address.unwrap_or_default();
            !program.address.is_empty()
        });
        let mut client = Client::new(&program);
        for model in [PLAIN, ASSEMBLED] {
            client.ask(&request(model, false, 2), "\"usage\"");
        }
        // After the pool has read the engine's own counter, it sends plain requests.
        wait_for("the engine's numbers", || {
            let ask = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
            client
                .ask(ask, "model_pool_")
                .contains("model_pool_engine_requests{model=\"m\"")
        });
        program
    }

    fn allocations(&self) -> u64 {
        count_of(&self.folder.path().join("count.sock"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
    }
}

/// A keep-alive connection.
struct Client(TcpStream);

impl Client {
    fn new(program: &Program) -> Client {
        let socket = TcpStream::connect(&program.address).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Client(socket)
    }

    /// Reads the complete response, which contains this word.
    fn ask(&mut self, request: &str, word: &str) -> String {
        self.0.write_all(request.as_bytes()).expect("sent");
        let (mut response, mut part) = (Vec::new(), [0; 16 << 10]);
        while !is_whole(&response) {
            let length = self.0.read(&mut part).expect("a response");
            assert!(length > 0, "{}", String::from_utf8_lossy(&response));
            response.extend_from_slice(&part[..length]);
        }
        let text = String::from_utf8_lossy(&response).into_owned();
        assert!(
            text.starts_with("HTTP/1.1 200") && text.contains(word),
            "{text}"
        );
        text
    }
}

fn is_whole(response: &[u8]) -> bool {
    let Some(end) = response.windows(4).position(|window| window == b"\r\n\r\n") else {
        return false;
    };
    let head = String::from_utf8_lossy(&response[..end]).to_lowercase();
    match head.split_once("content-length: ") {
        Some((_, rest)) => {
            let length = rest.lines().next().and_then(|length| length.parse().ok());
            let length: usize = length.expect("a number");
            response.len() >= end + 4 + length
        }
        None => response.ends_with(b"\r\n0\r\n\r\n"),
    }
}
