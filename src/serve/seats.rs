//! Streams that continue in a process which has handed over its engines. That process reports its requests in flight per engine to
//! every later controller, which counts them at its gates: the engine is busy, drains wait for them, and keep-hot counts from their
//! end (L2).
//!
//! ```text
//!  old: listens on run/streams-PID.sock until its streams have ended
//!  new: at every start, also after a `kill -9` of the process in between
//!   │─── connects to each such socket ──▶│
//!   │◀── requests in flight, on change ──│
//!   │◀── end of the connection ──────────▼ all its requests have ended
//! ```

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;

use super::takeover::ShortPath;
use controller::{Handle, SeatCounts};
use pool::{ReplicaId, Time};

const PREFIX: &str = "streams-";
const SUFFIX: &str = ".sock";
/// Delay after which a later controller learns that a stream has ended.
const REPORT_EVERY: Duration = Duration::from_millis(50);
/// Timeout for the first report of another process.
const FIRST_REPORT_MAX: Duration = Duration::from_secs(2);

/// The serialized form of [`SeatCounts`]. Unknown fields of other versions are ignored.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Seats {
    replica: u64,
    in_flight: u32,
    last_end_ms: Option<u64>,
}

impl From<SeatCounts> for Seats {
    fn from(seats: SeatCounts) -> Seats {
        Seats {
            replica: seats.replica.0,
            in_flight: seats.in_flight,
            last_end_ms: seats.last_end.map(|at| at.0),
        }
    }
}

/// A socket's file, removed on drop.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Reports this process's requests in flight to every process that connects, for as long as it is
/// polled. The socket listens when this function returns.
pub(super) fn tell(
    runtime_dir: &Path,
    handle: Handle,
) -> Option<impl Future<Output = ()> + Send + use<>> {
    let name = format!("{PREFIX}{}{SUFFIX}", std::process::id());
    let path = runtime_dir.join(&name);
    let listen = || {
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(ShortPath::new(runtime_dir)?.path(&name))?;
        listener.set_nonblocking(true)?;
        tokio::net::UnixListener::from_std(listener)
    };
    match listen() {
        Ok(listener) => {
            let file = SocketFile(path);
            Some(async move {
                let _file = file;
                report_all(&listener, || handle.seats_taken()).await;
            })
        }
        Err(error) => {
            tracing::warn!(%error, "cannot report streams to the new process; it does not count the streams that continue here");
            None
        }
    }
}

async fn report_all(listener: &tokio::net::UnixListener, taken: impl Fn() -> Vec<SeatCounts>) {
    let mut reported: Vec<Seats> = Vec::new();
    let mut listeners: Vec<tokio::net::UnixStream> = Vec::new();
    loop {
        let seats: Vec<Seats> = taken().into_iter().map(Seats::from).collect();
        let line = line_of(&seats);
        if seats != reported {
            reported = seats;
            let mut connected = Vec::new();
            for mut listener in listeners {
                // Closed connections are dropped.
                if listener.write_all(&line).await.is_ok() {
                    connected.push(listener);
                }
            }
            listeners = connected;
        }
        if let Ok(Ok((mut new, _))) = tokio::time::timeout(REPORT_EVERY, listener.accept()).await
            && new.write_all(&line).await.is_ok()
        {
            listeners.push(new);
        }
    }
}

fn line_of(seats: &[Seats]) -> Vec<u8> {
    // Plain data with string keys always serializes.
    let mut line = serde_json::to_vec(seats).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Replaced processes whose streams continue.
#[derive(Default)]
pub(super) struct OtherProcesses {
    sources: Vec<(BufReader<UnixStream>, Vec<Seats>)>,
}

impl OtherProcesses {
    /// Finds all such processes, with their first reports. Removes sockets without a listening process.
    pub async fn find(runtime_dir: &Path) -> OtherProcesses {
        let folder = runtime_dir.to_owned();
        let found = tokio::task::spawn_blocking(move || OtherProcesses::try_find(&folder)).await;
        found.unwrap_or_default()
    }

    fn try_find(folder: &Path) -> OtherProcesses {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let ours = |name: &String| name.starts_with(PREFIX) && name.ends_with(SUFFIX);
        let mut sources = Vec::new();
        for name in names.filter(ours) {
            match connect(folder, &name) {
                Ok(source) => sources.push(source),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    let _ = std::fs::remove_file(folder.join(&name));
                }
                Err(error) => {
                    tracing::warn!(%error, name, "cannot read the streams of a replaced process; they are not counted");
                }
            }
        }
        OtherProcesses { sources }
    }

    pub fn taken(&self) -> Vec<SeatCounts> {
        sum(self.sources.iter().map(|(_, seats)| seats.as_slice()))
    }

    /// Counts their streams at our gates until each process has ended.
    pub fn follow(self, handle: &Handle) {
        let handle = handle.clone();
        self.follow_with(move |taken| handle.seats_of_earlier_controllers(taken));
    }

    fn follow_with(self, tell: impl Fn(&[SeatCounts]) + Send + Sync + 'static) {
        let all: BTreeMap<usize, Vec<Seats>> = self
            .sources
            .iter()
            .map(|(_, seats)| seats.clone())
            .enumerate()
            .collect();
        let shared = Arc::new((Mutex::new(all), tell));
        for (nth, (mut reader, _)) in self.sources.into_iter().enumerate() {
            let shared = Arc::clone(&shared);
            // Ends with the other process; our shutdown does not wait for it.
            drop(tokio::task::spawn_blocking(move || {
                let (all, tell) = &*shared;
                let _ = reader.get_ref().set_read_timeout(None);
                loop {
                    let report = read_report(&mut reader);
                    let is_over = report.is_err();
                    // Held during the call, because two threads could otherwise report in the wrong order.
                    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                    all.insert(nth, report.unwrap_or_default());
                    tell(&sum(all.values().map(Vec::as_slice)));
                    if is_over {
                        return;
                    }
                }
            }));
        }
    }
}

fn connect(folder: &Path, name: &str) -> io::Result<(BufReader<UnixStream>, Vec<Seats>)> {
    let socket = UnixStream::connect(ShortPath::new(folder)?.path(name))?;
    socket.set_read_timeout(Some(FIRST_REPORT_MAX))?;
    let mut reader = BufReader::new(socket);
    let seats = read_report(&mut reader)?;
    Ok((reader, seats))
}

fn read_report(reader: &mut impl BufRead) -> io::Result<Vec<Seats>> {
    let mut line = String::new();
    match reader.read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(serde_json::from_str(&line)?),
    }
}

fn sum<'a>(sources: impl Iterator<Item = &'a [Seats]>) -> Vec<SeatCounts> {
    let mut all: BTreeMap<u64, SeatCounts> = BTreeMap::new();
    for seats in sources.flatten() {
        let one = all.entry(seats.replica).or_insert(SeatCounts {
            replica: ReplicaId(seats.replica),
            in_flight: 0,
            last_end: None,
        });
        one.in_flight += seats.in_flight;
        one.last_end = one.last_end.max(seats.last_end_ms.map(Time));
    }
    all.into_values().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn inside(in_flight: u32) -> Vec<SeatCounts> {
        vec![SeatCounts {
            replica: ReplicaId(7),
            in_flight,
            last_end: None,
        }]
    }

    #[tokio::test]
    async fn streams_in_two_earlier_processes_are_reported_until_they_end() {
        let home = tempfile::tempdir().expect("a folder");
        let counts = [AtomicU32::new(2), AtomicU32::new(1)];
        let listen = |name: &str| {
            let listener = UnixListener::bind(home.path().join(name)).expect("a socket");
            listener.set_nonblocking(true).expect("not waiting");
            tokio::net::UnixListener::from_std(listener).expect("a listener")
        };
        let listeners = [listen("streams-1.sock"), listen("streams-2.sock")];
        // Left behind by a killed process.
        drop(UnixListener::bind(home.path().join("streams-3.sock")).expect("a socket"));
        let (sender, mut totals) = tokio::sync::mpsc::unbounded_channel();
        let new = async {
            let found = OtherProcesses::find(home.path()).await;
            assert_eq!(found.taken(), inside(3));
            found.follow_with(move |taken| {
                let _ = sender.send(taken.iter().map(|seats| seats.in_flight).sum::<u32>());
            });
            counts[0].store(0, Ordering::SeqCst);
            assert_eq!(totals.recv().await, Some(1));
            totals
        };
        let tell = |nth: usize| {
            let counts = &counts;
            report_all(&listeners[nth], move || {
                inside(counts[nth].load(Ordering::SeqCst))
            })
        };
        let mut totals = tokio::select! {
            totals = new => totals,
            () = tell(0) => unreachable!("it reports for as long as it is polled"),
            () = tell(1) => unreachable!("it reports for as long as it is polled"),
        };
        // Both processes end with their connections.
        while totals.recv().await.expect("a report") > 0 {}
        assert!(!home.path().join("streams-3.sock").exists());
    }
}
