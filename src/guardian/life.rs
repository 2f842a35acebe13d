//! The life of one guardian: one thread, one loop around `poll`, one engine. It starts, keeps, stops and sweeps the engine on the
//! controller's orders, or by its rules for the time without a controller.

mod removal;

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use super::cgroup;
use super::child::{self, Engine, Pipes};
use super::link::{self, Link};
use super::output::{Output, now_ms};
use super::protocol::{End, Hello, Launch, Line, News, Order, ProcessId, Stream, VERSION};
use super::signals::Signals;
use removal::Removal;

/// Time limit for the controller to receive the report of the engine's end.
const FAREWELL_MAX: Duration = Duration::from_secs(10);
const CHUNK_BYTES: usize = 64 << 10;

pub struct Life {
    signals: Signals,
    link: Option<Link>,
    /// The connected controller owns the engine; otherwise it only sends queries.
    attached: bool,
    listener: Option<UnixListener>,
    launch: Option<Launch>,
    /// The engine's control group, if there is one. This process is in it until the engine is.
    group: Option<PathBuf>,
    rules: Rules,
    engine: Option<Engine>,
    id: Option<ProcessId>,
    pipes: Pipes,
    output: Output,
    ready: bool,
    stopping: bool,
    terminate_received: bool,
    kill_at: Option<Instant>,
    busy: bool,
    last_end_ms: Option<u64>,
    /// Time at which the last controller left.
    alone: Option<(Instant, u64)>,
    ending: Option<Removal>,
    end: Option<(End, Instant)>,
    over: bool,
}

/// The rules for the time without a controller.
#[derive(Clone, Copy, Default)]
struct Rules {
    keep: bool,
    within: Duration,
    grace: Duration,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place of the guardian that reads the clock"
)]
fn now() -> Instant {
    Instant::now()
}

impl Life {
    /// `controller` is the connection to the controller that started this guardian, `group` the path for the
    /// engine's control group.
    pub fn new(controller: UnixStream, group: Option<PathBuf>) -> io::Result<Life> {
        child::become_subreaper();
        Ok(Life {
            signals: Signals::install()?,
            link: Some(Link::new(controller)?),
            attached: true,
            listener: None,
            launch: None,
            group: group.filter(|folder| cgroup::enter(folder)),
            rules: Rules::default(),
            engine: None,
            id: None,
            pipes: Pipes {
                stdout: None,
                stderr: None,
            },
            output: Output::default(),
            ready: false,
            stopping: false,
            terminate_received: false,
            kill_at: None,
            busy: false,
            last_end_ms: None,
            alone: None,
            ending: None,
            end: None,
            over: false,
        })
    }

    /// Runs until the engine is gone and the controller knows it, or the engine is no longer needed.
    pub fn run(mut self) {
        while !self.over {
            self.wait();
            self.terminate_received |= self.signals.take();
            let orders = self.link.as_mut().map(Link::read).unwrap_or_default();
            for order in orders {
                self.handle_order(order);
            }
            if self.link.as_ref().is_some_and(|link| link.ended) {
                self.controller_left();
            }
            // A connected controller decides on its own; without one, the signal is for this process.
            if self.terminate_received && self.alone.is_some() && !self.stopping {
                self.stop(self.rules.grace);
            }
            self.accept();
            self.read_pipes();
            self.check_engine();
            self.check_timers();
            if let Some(link) = &mut self.link {
                link.write();
            }
        }
        self.remove_files();
    }

    fn wait(&mut self) {
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(5);
        fds.push(PollFd::new(self.signals.fd(), PollFlags::POLLIN));
        if let Some(link) = &self.link {
            let flags = if link.has_unsent() {
                PollFlags::POLLIN | PollFlags::POLLOUT
            } else {
                PollFlags::POLLIN
            };
            fds.push(PollFd::new(link.fd(), flags));
        }
        if let Some(listener) = &self.listener {
            fds.push(PollFd::new(listener.as_fd(), PollFlags::POLLIN));
        }
        for pipe in [&self.pipes.stdout, &self.pipes.stderr]
            .into_iter()
            .flatten()
        {
            fds.push(PollFd::new(pipe.as_fd(), PollFlags::POLLIN));
        }
        let timeout = match self.next_deadline() {
            None => PollTimeout::NONE,
            Some(at) => {
                let left = at
                    .saturating_duration_since(now())
                    .as_micros()
                    .div_ceil(1_000);
                PollTimeout::from(u16::try_from(left).unwrap_or(u16::MAX))
            }
        };
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            // Memory is short; try again soon.
            Err(_) => std::thread::park_timeout(Duration::from_millis(10)),
        }
    }

    /// Time at which the next timer is due.
    fn next_deadline(&self) -> Option<Instant> {
        let alone = self.alone.map(|(since, _)| since + self.rules.within);
        let ending = self.ending.as_ref().map(|ending| {
            let age = now().saturating_duration_since(ending.since);
            now() + (age / 8).clamp(Duration::from_millis(1), Duration::from_millis(50))
        });
        let farewell = self.end.as_ref().map(|(_, at)| *at + FAREWELL_MAX);
        let farewell = farewell.filter(|_| self.alone.is_none());
        let alone = alone.filter(|_| !self.stopping || self.end.is_some());
        [alone, ending, farewell, self.kill_at]
            .into_iter()
            .flatten()
            .min()
    }

    fn handle_order(&mut self, order: Order) {
        match order {
            Order::Launch(launch) => {
                if self.launch.is_none() {
                    self.start(*launch);
                }
            }
            Order::Ready => self.ready = true,
            Order::Used { busy, last_end_ms } => {
                (self.busy, self.last_end_ms) = (busy, last_end_ms);
            }
            Order::Stop { grace_ms } => self.stop(Duration::from_millis(grace_ms)),
            Order::Successor { within_ms } => {
                self.rules.keep = true;
                self.rules.within = Duration::from_millis(within_ms);
            }
            Order::Adopt {
                version: _,
                keep,
                adopt_within_ms,
                grace_ms,
            } => {
                self.rules = Rules {
                    keep,
                    within: Duration::from_millis(adopt_within_ms),
                    grace: Duration::from_millis(grace_ms),
                };
                self.attached = true;
                self.alone = None;
                self.terminate_received = false;
                // Gives the new controller the full time to receive an end that was reported before.
                if let Some((_, at)) = &mut self.end {
                    *at = now();
                }
            }
            Order::Unknown => {}
        }
    }

    fn start(&mut self, launch: Launch) {
        self.rules = Rules {
            keep: launch.keep,
            within: Duration::from_millis(launch.adopt_within_ms),
            grace: Duration::from_millis(launch.grace_ms),
        };
        let started = self.try_start(&launch);
        self.launch = Some(launch);
        match started {
            Ok(engine) => self.send(News::Started { engine }),
            Err((code, message)) => {
                self.send(News::NotStarted { code, message });
                self.end = Some((End::default(), now()));
            }
        }
        self.leave_group();
    }

    /// The engine stays in the group. If this process cannot leave it, the group must not be killed.
    fn leave_group(&mut self) {
        self.group = self.group.take().filter(|folder| cgroup::leave(folder));
    }

    fn try_start(&mut self, launch: &Launch) -> Result<ProcessId, (Option<i32>, String)> {
        let failed = |what: String| {
            move |error: io::Error| (error.raw_os_error(), format!("{what}: {error}"))
        };
        let _ = std::fs::remove_file(&launch.socket);
        let listener = UnixListener::bind(&launch.socket)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(failed("the guardian cannot listen".to_owned()))?;
        self.listener = Some(listener);
        self.output.begin(launch);
        let (engine, pipes) =
            Engine::spawn(launch).map_err(|error| (error.raw_os_error(), error.to_string()))?;
        let id = engine.id;
        self.engine = Some(engine);
        self.pipes = pipes;
        self.id = Some(id);
        Ok(id)
    }

    /// Sends SIGTERM to the group, then SIGKILL after the grace period. Without a grace period, sends only SIGKILL.
    fn stop(&mut self, grace: Duration) {
        self.stopping = true;
        let Some(engine) = &self.engine else {
            return;
        };
        if grace.is_zero() {
            self.kill_at = None;
            return engine.signal(Signal::SIGKILL);
        }
        engine.terminate();
        let at = now() + grace;
        self.kill_at = Some(self.kill_at.map_or(at, |known| known.min(at)));
    }

    fn controller_left(&mut self) {
        self.link = None;
        if !std::mem::replace(&mut self.attached, false) {
            return;
        }
        if self.launch.is_none() || self.end.is_some() {
            self.over = true;
            return;
        }
        self.alone = Some((now(), now_ms()));
        let kept = self.rules.keep && (self.ready || self.stopping);
        if !kept {
            self.rules.within = Duration::ZERO;
            self.stop(Duration::ZERO);
        }
    }

    /// Accepts a later controller, or a query whether one is connected.
    fn accept(&mut self) {
        let Some(listener) = &self.listener else {
            return;
        };
        let Ok((socket, _)) = listener.accept() else {
            return;
        };
        if !link::is_ours(&socket) {
            return;
        }
        let Ok(mut link) = Link::new(socket) else {
            return;
        };
        if self.link.is_some() {
            return link.send(News::Taken);
        }
        let Some(launch) = &self.launch else {
            return;
        };
        link.send(News::Hello(Box::new(Hello {
            version: VERSION,
            guardian: ProcessId::new(std::process::id()),
            token: launch.token.clone(),
            replica: launch.replica,
            engine: self.id,
            ready: self.ready,
            stopping: self.stopping,
            alone_since_ms: self.alone.map(|(_, at)| at),
            busy: self.busy,
            last_end_ms: self.last_end_ms,
            end: self.end.as_ref().map(|(end, _)| end.clone()),
        })));
        for line in self.output.recent() {
            link.send(News::Line(line.clone()));
        }
        if let Some((end, _)) = &self.end {
            link.send(News::Exited(end.clone()));
        }
        self.link = Some(link);
    }

    fn read_pipes(&mut self) {
        let mut lines = Vec::new();
        let pipes = [
            (Stream::Stdout, &mut self.pipes.stdout),
            (Stream::Stderr, &mut self.pipes.stderr),
        ];
        for (stream, pipe) in pipes {
            read_pipe(pipe, stream, &mut self.output, &mut lines);
        }
        self.send_lines(lines);
    }

    fn send(&mut self, news: News) {
        if let Some(link) = &mut self.link {
            link.send(news);
        }
    }

    fn send_lines(&mut self, lines: Vec<Line>) {
        if let Some(link) = &mut self.link {
            lines
                .into_iter()
                .for_each(|line| link.send(News::Line(line)));
        }
    }
}

/// Reads one chunk of a pipe. A flood of output must not block anything else.
fn read_pipe(pipe: &mut Option<File>, stream: Stream, output: &mut Output, lines: &mut Vec<Line>) {
    let Some(file) = pipe else {
        return;
    };
    let mut chunk = vec![0; CHUNK_BYTES];
    match file.read(&mut chunk) {
        Ok(0) => *pipe = None,
        Ok(count) => lines.extend(output.take(stream, &chunk[..count])),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
        Err(_) => *pipe = None,
    }
}
