//! The cost of open dashboard pages: the controller's own processor time with 200 of them, while idle and while models are loaded.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use serde_json::json;
use support::net::stub;
use support::service::{Pool, wait_for};

const PAGES: u64 = 200;
const MODELS: usize = 60;

/// User and system time of a process so far.
fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // proc(5): utime and stime are the 14th and 15th field, in ticks of 10 ms.
    let times = fields[11..13].iter();
    let ticks: u64 = times.filter_map(|number| number.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// A page that reads all events in a thread that ends with the pool. Counts complete views and bytes.
fn open_page(pool: &Pool, key: &str, pictures: &Arc<AtomicU64>, bytes: &Arc<AtomicU64>) {
    let mut socket = TcpStream::connect(pool.address()).expect("the pool listens");
    let head = format!(
        "GET /llm/admin/live?events=true HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {key}\r\n\r\n",
        pool.address()
    );
    socket.write_all(head.as_bytes()).expect("sent");
    let (pictures, bytes) = (Arc::clone(pictures), Arc::clone(bytes));
    std::thread::spawn(move || {
        let mut chunk = vec![0; 64 << 10];
        let mut has_picture = false;
        while let Ok(count @ 1..) = socket.read(&mut chunk) {
            bytes.fetch_add(count as u64, Ordering::Relaxed);
            if !has_picture
                && chunk[..count]
                    .windows(11)
                    .any(|window| window == b"event: view")
            {
                has_picture = true;
                pictures.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
}

/// Processor usage of the controller during this time, in per cent of a core.
fn share(pool: &Pool, time: Duration, mut each_second: impl FnMut(u64)) -> f64 {
    let (began, before) = (SystemTime::now(), processor_time(pool.pid()));
    for second in 0..time.as_secs() {
        each_second(second);
        std::thread::park_timeout(Duration::from_secs(1));
    }
    let used = processor_time(pool.pid()) - before;
    let passed = began.elapsed().unwrap_or(time);
    100.0 * used.as_secs_f64() / passed.as_secs_f64()
}

#[test]
fn two_hundred_open_pages_use_little_cpu_of_the_controller() {
    let _turn = super::ALONE.blocking_lock();
    let seconds = std::env::var("WATCH_SECONDS").ok();
    let time = Duration::from_secs(
        seconds
            .and_then(|seconds| seconds.parse().ok())
            .unwrap_or(10),
    );
    let files: Vec<_> = (0..MODELS)
        .map(|nth| stub(&format!("m{nth}"), &[]))
        .collect();
    let pool = Pool::with_models(&files, "");
    let key = pool.admin_key();
    let (pictures, bytes) = (Arc::default(), Arc::default());
    for _ in 0..PAGES {
        open_page(&pool, &key, &pictures, &bytes);
    }
    wait_for("every page to have its picture", || {
        pictures.load(Ordering::Relaxed) == PAGES
    });
    let quiet = share(&pool, time, |_| {});
    let before = bytes.load(Ordering::Relaxed);
    let busy = share(&pool, time, |second| {
        if second % 5 == 0 {
            let model = format!("m{}", second / 5 % MODELS as u64);
            let body = json!({"model": model, "wait": false}).to_string();
            let (status, text, _) = pool.request("POST", "/llm/admin/load", &body, Some(&key));
            assert!(status < 300, "{text}");
        }
    });
    let sent = bytes.load(Ordering::Relaxed) - before;
    println!(
        "{PAGES} pages of {MODELS} models: {quiet:.2} % of a core while nothing happens; {busy:.2} % with a load every 5 s, {} KiB sent",
        sent >> 10
    );
    assert!(sent > PAGES * 100, "the pages see the loads: {sent} bytes");
    // For an unoptimised build on a shared machine.
    let most = if cfg!(debug_assertions) { 25.0 } else { 5.0 };
    assert!(
        quiet <= most && busy <= most,
        "{quiet:.2} % and {busy:.2} % of a core"
    );
}
