//! A service manager with systemd's notification protocol: it gives a service a socket address, and stores the messages.

use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::service::wait_for;

pub struct Manager {
    path: String,
    text: Arc<Mutex<String>>,
    /// Messages before this position have been checked.
    heard: usize,
    _home: tempfile::TempDir,
}

impl Manager {
    pub fn start() -> Manager {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(10)))
            .unwrap();
        let text: Arc<Mutex<String>> = Arc::default();
        let into = Arc::downgrade(&text);
        // Reads continuously: a socket holds few messages (net.unix.max_dgram_qlen), and a service drops messages that do not fit.
        thread::spawn(move || {
            while let Some(text) = into.upgrade() {
                let mut bytes = [0; 256];
                if let Ok(count) = socket.recv(&mut bytes) {
                    *lock(&text) += &String::from_utf8_lossy(&bytes[..count]);
                }
            }
        });
        Manager {
            path: path.display().to_string(),
            text,
            heard: 0,
            _home: home,
        }
    }

    /// The value of `NOTIFY_SOCKET`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// All messages so far.
    pub fn text(&self) -> String {
        lock(&self.text).clone()
    }

    /// Waits for a message after the last checked one.
    pub fn hears(&mut self, words: &str) {
        let (text, from) = (Arc::clone(&self.text), self.heard);
        let mut end = from;
        wait_for(words, || {
            let text = lock(&text);
            let found = text[from..].find(words);
            end = from + found.unwrap_or(0) + words.len();
            found.is_some()
        });
        self.heard = end;
    }

    /// Skips all messages so far.
    pub fn catch_up(&mut self) {
        self.heard = lock(&self.text).len();
    }
}

fn lock(text: &Mutex<String>) -> MutexGuard<'_, String> {
    text.lock().unwrap_or_else(PoisonError::into_inner)
}
