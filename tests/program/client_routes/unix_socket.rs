//! The service on a Unix socket.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::service::wait_for;

/// Status and head of a request over a Unix socket.
fn over_socket(path: &Path, lines: &str) -> (u16, String) {
    let mut socket = UnixStream::connect(path).unwrap();
    let head = format!(
        "GET /v1/models HTTP/1.1\r\nHost: llm.example.org\r\n{lines}Connection: close\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    (text.split(' ').nth(1).unwrap().parse().unwrap(), text)
}

fn on_socket(folder: &Path, socket: &Path, more: &[&str]) -> Child {
    let config = format!(
        "server: {{listen: \"unix:{}\", socket_mode: \"660\"}}\nstate: {{dir: {:?}}}\ncatalog: {{models_dir: {:?}}}\n",
        socket.display(),
        folder.join("data"),
        folder.join("models"),
    );
    fs::write(folder.join("config.yaml"), config).unwrap();
    fs::create_dir_all(folder.join("models")).unwrap();
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .unwrap();
    Command::new(support::program())
        .arg("serve")
        .arg("--config")
        .arg(folder.join("config.yaml"))
        .args(more)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

fn terminate(mut child: Child) {
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_service_listens_on_a_unix_socket_with_its_permissions() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("http.sock");
    let serves = |count: usize| {
        let log = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        log.matches("serving http://unix:").count() >= count
    };
    // A socket left by a killed process does not prevent the start.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let child = on_socket(folder.path(), &socket, &[]);
    wait_for("the socket to be served", || serves(1));
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let (status, text) = over_socket(&socket, "");
    assert_eq!(status, 200, "{text}");
    // A client behind a proxy does not count as local.
    for line in [
        "X-Forwarded-For: 127.0.0.1\r\n",
        "X-Forwarded-For: 192.0.2.1\r\n",
        "Via: 1.1 proxy\r\n",
    ] {
        let (status, text) = over_socket(&socket, line);
        assert_eq!(status, 401, "{line}: {text}");
    }
    // A service with another state cannot take the socket; a new process takes over without a pause.
    let other = tempfile::tempdir().unwrap();
    assert!(
        !on_socket(other.path(), &socket, &[])
            .wait()
            .unwrap()
            .success()
    );
    let log = fs::read_to_string(other.path().join("log")).unwrap();
    assert!(log.contains("another process listens there"), "{log}");
    let successor = on_socket(folder.path(), &socket, &["--takeover"]);
    wait_for("the new one to serve", || serves(2));
    let mut child = child;
    assert!(child.wait().unwrap().success());
    assert_eq!(over_socket(&socket, "").0, 200);
    terminate(successor);
    assert!(!socket.exists(), "nothing is left behind");
}
