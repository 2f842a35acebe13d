//! Open WebUI in a real Chromium, configured as in docs/guides/clients.md, with the real program. The checks are
//! `tests/clients/open_webui.py`; `.ci/open-webui` installs Open WebUI, and `.ci/dashboard` the browser driver.

use std::fs::{self, File};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use support::child::ChildGuard;
use support::external_programs::skipped;
use support::net::rest;
use support::service::Pool;

use crate::clients::{root, run_within, user_key};

/// The first start creates its database, which takes long on a busy machine.
const START: Duration = Duration::from_secs(240);
const LIMIT: Duration = Duration::from_secs(580);
/// Scripted responses: `turns` for requests with tools, `plain` for titles, tags and follow-up questions.
const WRITER: &str = r#"{"turns": [{"say": "I am the scripted writer."}], "plain": "{\"title\": \"A scripted title\", \"tags\": [\"test\"], \"follow_ups\": []} I am the scripted writer."}"#;

/// The text of the Whisper model for every recording.
const TRANSCRIPT: &str = "The pool hears every word.";
/// Tokens of the tiny Whisper model, and its width.
const ENGLISH: usize = 302;
const TRANSCRIBE: usize = 311;
const ZERO_SECONDS: usize = 316;
const ONE_SECOND: usize = 366;
const END: usize = 300;
const TOKENS: usize = 1817;
const POSITIONS: usize = 64;
const WIDTH: u16 = 16;

fn brought(path: &str, installer: &str) -> Option<PathBuf> {
    let path = root().join("target").join(path);
    if path.exists() && Path::new("/usr/bin/chromium").exists() {
        return Some(path);
    }
    let why = format!(
        "{} and Chromium are needed. Install them with `bash .ci/dashboard && bash {installer}`, and run `cargo test --test outside open_webui::`",
        path.display()
    );
    skipped("open-webui", &why);
    None
}

/// A port that is currently free: Open WebUI cannot report the port that it binds.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// The settings in docs/guides/clients.md, for this pool.
fn settings(pool: &Pool, key: &str) -> Vec<(String, String)> {
    let page = fs::read_to_string(root().join("docs/guides/clients.md")).unwrap();
    let section = page.split("\n## Open WebUI\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let blocks = section.split("```sh\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("```").next().unwrap().lines());
    let lines = lines.filter(|line| !line.starts_with('#'));
    let values = lines.map(|line| {
        let (name, value) = line.split_once('=').unwrap();
        let value = value.replace("host:8080", pool.address());
        (name.to_owned(), value.replace("KEY", key))
    });
    let settings: Vec<(String, String)> = values.collect();
    assert!(settings.len() > 15, "{settings:?}");
    settings
}

struct OpenWebUi {
    child: ChildGuard,
    url: String,
    folder: tempfile::TempDir,
}

impl OpenWebUi {
    fn start(program: &Path, settings: &[(String, String)]) -> OpenWebUi {
        let folder = tempfile::tempdir().unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let port = free_port().to_string();
        let child = Command::new(program)
            .args(["serve", "--host", "127.0.0.1", "--port", &port])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", folder.path())
            .env("DATA_DIR", folder.path().join("data"))
            .env("WEBUI_SECRET_KEY", "of this test")
            // One person without a login, and no settings from an earlier start.
            .env("WEBUI_AUTH", "False")
            .env("ENABLE_PERSISTENT_CONFIG", "False")
            .envs(settings.iter().map(|(name, value)| (name, value)))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stderr(log.try_clone().unwrap())
            .stdout(log)
            .spawn()
            .unwrap();
        let url = format!("http://127.0.0.1:{port}");
        let mut web = OpenWebUi {
            child: ChildGuard(child),
            url,
            folder,
        };
        let began = SystemTime::now();
        while !web.is_healthy() {
            let ended = web.child.try_wait().unwrap();
            let is_late = began.elapsed().unwrap_or_default() > START;
            assert!(
                ended.is_none() && !is_late,
                "Open WebUI did not start: {ended:?}\n{}",
                web.log()
            );
            std::thread::park_timeout(Duration::from_millis(200));
        }
        web
    }

    fn is_healthy(&self) -> bool {
        let address = self.url.trim_start_matches("http://");
        let Ok(mut socket) = TcpStream::connect(address) else {
            return false;
        };
        let request = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        socket.write_all(request.as_bytes()).is_ok() && rest(&mut socket).contains("\"status\"")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

/// Copies a tiny model of the embedded engine's tests.
fn copy_model(kept: &str, folder: &Path) {
    fs::create_dir(folder).unwrap();
    let kept = root().join("candle-engine/tests/vectors").join(kept);
    for file in fs::read_dir(kept).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
}

/// A model that sees. Its template leaves out Open WebUI's list of attached files, whose identifiers differ each time.
fn make_vision(folder: &Path) {
    copy_model("library/qwen3-vl", folder);
    let path = folder.join("chat_template.jinja");
    let template = fs::read_to_string(&path).unwrap();
    let (before, after) = template.split_once("'text' in part").unwrap();
    let condition = "'text' in part and '<attached_files>' not in part.text";
    fs::write(path, format!("{before}{condition}{after}")).unwrap();
}

/// Copies the tiny Whisper model, and changes the copy to write [`TRANSCRIPT`]. The embeddings of tokens are different vectors of signs.
/// A position has the embedding of its planned token, a thousand times as large as every other influence.
fn make_whisper(folder: &Path) {
    copy_model("speech/whisper", folder);
    let tokenizer = fs::read(folder.join("tokenizer.json")).unwrap();
    let tokenizer: Value = serde_json::from_slice(&tokenizer).unwrap();
    let token = |letter: char| {
        let letter = if letter == ' ' { 'Ġ' } else { letter };
        let token = &tokenizer["model"]["vocab"][letter.to_string()];
        token.as_u64().unwrap() as usize
    };
    let mut planned = vec![ENGLISH, TRANSCRIBE, ZERO_SECONDS];
    planned.extend(TRANSCRIPT.chars().map(token));
    planned.push(ONE_SECOND);
    planned.resize(POSITIONS, END);

    // As many plus signs as minus signs: the layer norm leaves such a vector as it is.
    let signs: Vec<u16> = (0..=u16::MAX)
        .filter(|signs| signs.count_ones() == 8)
        .collect();
    // The sign is the first bit of a number.
    let row = |token: usize, size: u16| {
        let signs = signs[token];
        (0..WIDTH).map(move |column| size | (((signs >> column) & 1) << 15))
    };
    let [one, four, thousand] = [0x3c00, 0x4400, 0x6400];
    let tokens: Vec<u16> = (0..TOKENS).flat_map(|token| row(token, one)).collect();
    let positions: Vec<u16> = (planned.iter())
        .flat_map(|token| row(*token, thousand))
        .collect();
    let width = usize::from(WIDTH);

    let path = folder.join("model.safetensors");
    let mut file = fs::read(&path).unwrap();
    let start = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&file[8..start]).unwrap();
    for (name, numbers) in [
        ("embed_tokens.weight", tokens),
        ("embed_positions.weight", positions),
        ("layer_norm.weight", vec![four; width]),
        ("layer_norm.bias", vec![0; width]),
    ] {
        let tensor = &header[format!("model.decoder.{name}")];
        assert_eq!(tensor["dtype"], "F16", "{name}");
        let offset = |nth: usize| start + tensor["data_offsets"][nth].as_u64().unwrap() as usize;
        let bytes: Vec<u8> = numbers.into_iter().flat_map(u16::to_le_bytes).collect();
        file[offset(0)..offset(1)].copy_from_slice(&bytes);
    }
    fs::write(path, file).unwrap();
}

/// The file of a model of the embedded engine.
fn embedded(name: &str, path: &Path, keys: &str) -> (String, String) {
    let file = format!(
        "engine_config:\n  model_id: {name}\n  type: CandleEngine\n  model_path: {path:?}\n{keys}  engine_kwargs: {{concurrency: 2, threads: 1, device: cpu}}\n"
    );
    (format!("{name}.yaml"), file)
}

fn stub(name: &str, words: &[&str]) -> (String, String) {
    let flags = [&["--model", name][..], words].concat();
    support::stub::model(name, &flags, "memory_gib: 0.01")
}

#[test]
fn open_webui_chats_reads_files_sees_hears_and_speaks_over_both_apis() {
    let Some(program) = brought("open-webui/venv/bin/open-webui", ".ci/open-webui") else {
        return;
    };
    let Some(python) = brought("dashboard/venv/bin/python", ".ci/open-webui") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let turns = folder.path().join("turns.json");
    fs::write(&turns, WRITER).unwrap();
    let whisper = folder.path().join("whisper");
    make_whisper(&whisper);
    let vision = folder.path().join("vision");
    make_vision(&vision);
    let guide = fs::read_to_string(root().join("config/models/tiny-guide.yaml")).unwrap();
    let demo = root().join("demo").display().to_string();
    let guide = guide.replace("../../demo", &demo);
    let files = [
        ("tiny-guide.yaml".to_owned(), guide),
        stub("writer", &["--turns", &turns.display().to_string()]),
        stub("echo", &["--echo"]),
        stub("slow", &["--tokens", "3000", "--token-ms", "20"]),
        stub("embedder", &[]),
        stub("voice", &[]),
        embedded("whisper", &whisper, ""),
        embedded(
            "vision",
            &vision,
            "  max_total_tokens: 512\n  generation: {generate_kwargs: {temperature: 0}}\n",
        ),
    ];
    let config = "inventory: {provider: host, host_memory: 2GiB}\nauth: {inference: key}\ncompat: {ollama: true}\n";
    let pool = Pool::with_devices(&files, config);
    let web = OpenWebUi::start(&program, &settings(&pool, &user_key(&pool)));
    let script = root().join("tests/clients/open_webui.py");
    let address = format!("http://{}", pool.address());
    let admin = pool.admin_key();
    let shots = std::env::var("MODEL_POOL_SCREENSHOTS").unwrap_or_default();
    let env = [
        ("MODEL_POOL_ROOT", address.as_str()),
        ("MODEL_POOL_ADMIN_KEY", admin.as_str()),
        ("MODEL_POOL_TRANSCRIPT", TRANSCRIPT),
        ("OPEN_WEBUI_URL", web.url.as_str()),
        ("MODEL_POOL_SCREENSHOTS", shots.as_str()),
    ];
    let script = script.display().to_string();
    let text = run_within(LIMIT, &python, &[script.as_str()], &env);
    println!("{text}");
    assert!(text.trim_end().ends_with(" passed, 0 failed"), "{text}");
    assert!(!pool.log().contains("panicked"), "{}", pool.log());
}
