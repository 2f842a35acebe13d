//! Faults that no engine should have, and some do: escaped descendants, closed pipes, floods of output, requests that never get a
//! token, invalid HTTP. Each has a flag and is off by default.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::flags::{milliseconds, number};
use crate::text;

#[derive(Default)]
pub struct Hostile {
    /// `--grandchildren`: starts a process in the same session, a process in a new session, and a double-forked process. All hold
    /// the output pipes, and each is announced as `grandchild PID`.
    pub grandchildren: bool,
    /// `--close-output`: closes standard output and error at the start.
    pub close_output: bool,
    /// `--print-mib N`: prints this much as fast as possible, once it listens.
    pub print_mib: usize,
    /// `--stuck-after N`: a response stops permanently after N tokens.
    pub stuck_after: Option<usize>,
    /// `--never-answer`: completions get no response at all.
    pub never_respond: bool,
    /// `--crash-on WORD`: aborts when a request contains the word.
    pub crash_on: Option<String>,
    /// `--health-answers N`: number of good health responses before the route hangs.
    pub health_responses: Option<usize>,
    pub health_responded: AtomicUsize,
    /// `--status N`: every completion gets this status.
    pub status: Option<u16>,
    /// `--exit-when-ready`: exits with 0 after its first good health response.
    pub exit_when_ready: bool,
    /// `--squat FILE`: if the file does not exist, creates it and lets another process take the port first, for `--squat-ms N`.
    pub squat: Option<PathBuf>,
    pub squat_for: Duration,
    /// `--raw KIND`: health responses are good, and completions get bytes that are not valid HTTP.
    pub raw: Option<RawBehaviour>,
    /// `--raw-file FILE`: as `--raw`, with the contents of this file as the stream.
    pub raw_file: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RawBehaviour {
    /// Chunks with wrong sizes.
    BrokenChunks,
    /// A head that arrives byte by byte and never ends.
    SlowHead,
    /// The connection is closed without a response.
    HangUp,
    /// A stream of one event that never ends.
    EndlessEvent,
    /// A stream whose body does not end after `[DONE]`.
    OpenAfterDone,
    /// A stream with an error after `[DONE]` in the same chunk.
    ErrorAfterDone,
    /// A stream with the contents of a file.
    File,
    /// Connections are accepted without any response, including health.
    Mute,
}

impl Hostile {
    /// Parses a flag. Returns false if it belongs to another group.
    pub fn take(
        &mut self,
        name: &str,
        value: &mut impl FnMut() -> Result<String, String>,
    ) -> Result<bool, String> {
        match name {
            "--grandchildren" => self.grandchildren = true,
            "--close-output" => self.close_output = true,
            "--print-mib" => self.print_mib = number(name, value()?)?,
            "--stuck-after" => self.stuck_after = Some(number(name, value()?)?),
            "--never-answer" => self.never_respond = true,
            "--crash-on" => self.crash_on = Some(value()?),
            "--health-answers" => self.health_responses = Some(number(name, value()?)?),
            "--status" => self.status = Some(number(name, value()?)?),
            "--exit-when-ready" => self.exit_when_ready = true,
            "--squat" => self.squat = Some(value()?.into()),
            "--squat-ms" => self.squat_for = milliseconds(name, value()?)?,
            "--raw-file" => {
                self.raw = Some(RawBehaviour::File);
                self.raw_file = Some(value()?.into());
            }
            "--raw" => {
                self.raw = Some(match value()?.as_str() {
                    "broken-chunks" => RawBehaviour::BrokenChunks,
                    "slow-head" => RawBehaviour::SlowHead,
                    "hang-up" => RawBehaviour::HangUp,
                    "endless-event" => RawBehaviour::EndlessEvent,
                    "open-after-done" => RawBehaviour::OpenAfterDone,
                    "error-after-done" => RawBehaviour::ErrorAfterDone,
                    "mute" => RawBehaviour::Mute,
                    other => return Err(format!("--raw {other} is not known")),
                });
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Aborts if the request contains the word of `--crash-on`.
    pub fn read(&self, body: &[u8]) {
        let word = self.crash_on.as_deref();
        if word.is_some_and(|word| String::from_utf8_lossy(body).contains(word)) {
            std::process::abort();
        }
    }

    /// Runs before everything else in the engine.
    pub fn begin(&self, words: &[String], port: u16) -> Result<(), String> {
        if self.close_output && std::env::var_os(CLOSED).is_none() {
            let error = Command::new("sh")
                .args(["-c", "exec \"$0\" \"$@\" >&- 2>&-"])
                .arg(std::env::current_exe().map_err(text)?)
                .args(words)
                .env(CLOSED, "1")
                .exec();
            return Err(format!("cannot run sh: {error}"));
        }
        if self.grandchildren {
            self.spawn_grandchildren()?;
        }
        if let Some(file) = &self.squat
            && !file.exists()
        {
            std::fs::write(file, "").map_err(text)?;
            squat(port, self.squat_for)?;
        }
        Ok(())
    }

    fn spawn_grandchildren(&self) -> Result<(), String> {
        let own = std::env::current_exe().map_err(text)?;
        println!("grandchild {}", crate::spawn_grandchild()?);
        let escaped = Command::new("setsid")
            .arg(&own)
            .arg("grandchild")
            .stdin(Stdio::null())
            .spawn();
        println!("grandchild {}", escaped.map_err(text)?.id());
        // The shell that forked it exits immediately, which orphans it.
        let twice = Command::new("sh")
            .args(["-c", "setsid \"$0\" grandchild & echo grandchild $!"])
            .arg(&own)
            .stdin(Stdio::null())
            .status();
        twice.map_err(text).map(drop)
    }

    /// Returns true once the health route has given all its good responses.
    pub fn hangs_now(&self) -> bool {
        let before = self.health_responded.fetch_add(1, Ordering::SeqCst);
        self.health_responses.is_some_and(|most| before >= most)
    }

    /// Prints on a separate thread, which ends when everything is printed or the pipe is closed.
    pub fn flood(&self) {
        let lines = self.print_mib * 1024;
        if lines > 0 {
            thread::spawn(move || {
                let line = format!("{}\n", "noise ".repeat(170));
                let mut output = std::io::stdout();
                let all = (0..lines).try_for_each(|_| output.write_all(line.as_bytes()));
                if all.is_ok() {
                    println!("printed it all");
                }
            });
        }
    }
}

const CLOSED: &str = "STUB_OUTPUT_IS_CLOSED";

/// Lets an unrelated process take the port: another session, nothing inherited.
fn squat(port: u16, time: Duration) -> Result<(), String> {
    Command::new("setsid")
        .arg(std::env::current_exe().map_err(text)?)
        .args(["squatter", &port.to_string(), &time.as_millis().to_string()])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(text)?;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// `stub-engine squatter PORT MS`.
pub fn be_squatter(words: &[String]) -> Result<(), String> {
    let mut words = words.iter().cloned();
    let mut next = || words.next().ok_or("squatter PORT MS".to_owned());
    let port: u16 = number("port", next()?)?;
    let time = milliseconds("time", next()?)?;
    let _listener = TcpListener::bind(("127.0.0.1", port)).map_err(text)?;
    thread::sleep(time);
    Ok(())
}

/// Serves raw bytes on the port, without end.
pub fn serve_raw(raw: RawBehaviour, file: Option<PathBuf>, port: u16) -> Result<(), String> {
    let listener = TcpListener::bind(("127.0.0.1", port))
        .map_err(|error| format!("cannot listen on 127.0.0.1:{port}: {error}"))?;
    println!("listening on 127.0.0.1:{port}");
    for socket in listener.incoming().flatten() {
        let file = file.clone();
        thread::spawn(move || respond_raw(raw, file, socket));
    }
    Ok(())
}

/// Write errors do not matter.
fn respond_raw(raw: RawBehaviour, file: Option<PathBuf>, mut socket: TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match socket.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    if raw == RawBehaviour::Mute {
        thread::sleep(Duration::from_secs(600));
        return;
    }
    if head.starts_with(b"GET") {
        let _ = socket.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\nConnection: close\r\n\r\n{\"status\":\"ok\"}",
        );
        return;
    }
    let stream =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n";
    match raw {
        RawBehaviour::BrokenChunks => {
            let event = "data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"}}]}\n\n";
            let good = format!("{stream}\r\n{:x}\r\n{event}\r\n", event.len());
            let _ = socket.write_all(good.as_bytes());
            let _ = socket.write_all(b"this is no size\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
            // Closing with unread bytes would reset the connection before they are read.
            let _ = socket.read(&mut [0; 65_536]);
        }
        RawBehaviour::SlowHead => {
            for byte in stream.bytes().cycle() {
                if socket.write_all(&[byte]).is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(50));
            }
        }
        RawBehaviour::EndlessEvent => {
            let piece = "x".repeat(64 << 10);
            let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
            let mut text = format!("{stream}\r\n6\r\ndata: \r\n");
            while socket.write_all(text.as_bytes()).is_ok() {
                text.clone_from(&chunk);
            }
        }
        RawBehaviour::OpenAfterDone | RawBehaviour::ErrorAfterDone => {
            let mut events = "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"bad\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"},\"finish_reason\":null}]}\n\ndata: [DONE]\n\n".to_owned();
            let mut end = "";
            if raw == RawBehaviour::ErrorAfterDone {
                events += "data: {\"error\":{\"message\":\"too late\",\"code\":500}}\n\n";
                end = "0\r\n\r\n";
            }
            let text = format!("{stream}\r\n{:x}\r\n{events}\r\n{end}", events.len());
            let _ = socket.write_all(text.as_bytes());
            // The body of the request, and then the end of the connection.
            while matches!(socket.read(&mut [0; 65_536]), Ok(1..)) {}
        }
        RawBehaviour::File => {
            let events = file.map(std::fs::read).and_then(Result::ok);
            let events = events.unwrap_or_default();
            let head = format!("{stream}Connection: close\r\n\r\n{:x}\r\n", events.len());
            let pieces = [head.as_bytes(), &events[..], &b"\r\n0\r\n\r\n"[..]];
            let _ = socket.write_all(&pieces.concat());
            // The body of the request, and then the end of the connection.
            while matches!(socket.read(&mut [0; 65_536]), Ok(1..)) {}
        }
        RawBehaviour::HangUp | RawBehaviour::Mute => {}
    }
}
