//! A controller that takes over and starts slowly (D4): its service manager receives signs of life, and it exits immediately if it
//! is deposed before it serves.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::family::stub;
use support::manager::Manager;
use support::postgres::{Server, name_of};
use support::service::wait_for;

use super::TAKEOVER_MAX;
use super::scene::{HERE, SocketProxy, controller, controller_with, health, leads};

/// The start waits 10 s for their responses.
const RAYS: usize = 6;

/// A model in a Ray that accepts the call and never responds.
fn in_ray(nth: usize, ray: &TcpListener) -> (String, String) {
    let address = ray.local_addr().unwrap();
    let text = format!(
        "engine_config:\n  model_id: r{nth}\n  type: RayServeEngine\n  address: http://{address}\n  import_path: lab.app:build\n"
    );
    (format!("r{nth}.yaml"), text)
}

#[test]
fn d4_a_controller_that_takes_over_reports_liveness_and_exits_immediately_when_deposed() {
    let Some(server) = Server::start() else {
        return;
    };
    let url = server.database();
    let way = SocketProxy::to(&server);
    let listen = |_| TcpListener::bind("127.0.0.1:0").unwrap();
    let rays: Vec<TcpListener> = (0..RAYS).map(listen).collect();
    let rays = rays.iter().enumerate();
    let models: Vec<_> = rays.map(|(nth, ray)| in_ray(nth, ray)).collect();
    let mut manager = Manager::start();
    let env = [
        ("NOTIFY_SOCKET", manager.path()),
        ("WATCHDOG_USEC", "300000"),
        ("MODEL_POOL__CLUSTER__NAME", "lab"),
    ];
    let mut first = controller(&[stub("a", &[])], &url);
    let mut second = controller_with(&models, &way.url(name_of(&url)), HERE, &env);
    assert_eq!(health(&second)["role"], "standby");
    manager.hears("WATCHDOG=1");

    first.kill();
    wait_for("the second one to lead", || leads(&second));
    manager.catch_up();
    for _ in 0..5 {
        manager.hears("WATCHDOG=1");
    }
    let serves = "Swagger UI at";
    assert!(!second.log().contains(serves), "{}", second.log());

    way.cut();
    assert!(second.wait(TAKEOVER_MAX), "it exits on its own");
    let log = second.log();
    assert!(
        log.contains("this controller is no longer the leader"),
        "{log}"
    );
    assert!(!log.contains(serves), "{log}");
}

/// A model with weights on a disk that accepts the call and never responds.
fn on_slow_disk(folder: &Path) -> (String, String) {
    let weights = folder.join("slow.gguf");
    fs::write(&weights, "GGUF").unwrap();
    let text = format!(
        "engine_config:\n  model_id: slow\n  type: CommandEngine\n  listen: port\n  model_path: {}\n  command: [engine, \"{{{{ model_path }}}}\", --port, \"{{{{ port }}}}\"]\n",
        weights.display()
    );
    ("slow.yaml".to_owned(), text)
}

/// A library for `LD_PRELOAD` that blocks opening the file of [`on_slow_disk`].
fn slow_disk(folder: &Path) -> PathBuf {
    const SOURCE: &str = r#"
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    int mode = va_arg(more, int);
    va_end(more);
    size_t length = strlen(path);
    while (length >= 9 && strcmp(path + length - 9, "slow.gguf") == 0) pause();
    return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
"#;
    let source = folder.join("slow_disk.c");
    fs::write(&source, SOURCE).unwrap();
    let library = folder.join("slow_disk.so");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-D_GNU_SOURCE", "-o"])
        .args([&library, &source])
        .status();
    assert!(built.expect("a C compiler").success());
    library
}

#[test]
fn d4_a_controller_reading_models_from_a_slow_disk_says_so_and_exits_when_deposed() {
    let Some(server) = Server::start() else {
        return;
    };
    let url = server.database();
    let way = SocketProxy::to(&server);
    let disk = tempfile::tempdir().unwrap();
    let mut manager = Manager::start();
    let library = slow_disk(disk.path());
    let env = [
        ("NOTIFY_SOCKET", manager.path()),
        ("WATCHDOG_USEC", "300000"),
        ("LD_PRELOAD", library.to_str().unwrap()),
    ];
    let models = [stub("a", &[]), on_slow_disk(disk.path())];
    let mut first = controller(&[stub("a", &[])], &url);
    let mut second = controller_with(&models, &way.url(name_of(&url)), HERE, &env);
    assert_eq!(health(&second)["role"], "standby");

    first.kill();
    let step = "computing what the models need takes long";
    wait_for("the step in the log", || second.log().contains(step));
    manager.catch_up();
    for _ in 0..3 {
        manager.hears("WATCHDOG=1");
    }

    way.cut();
    assert!(second.wait(TAKEOVER_MAX), "it exits on its own");
    let log = second.log();
    assert!(
        log.contains("this controller is no longer the leader"),
        "{log}"
    );
    assert!(!log.contains("Swagger UI at"), "{log}");
}
