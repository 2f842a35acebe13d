//! Runs the program at a pseudo-terminal like a person: types keys, and reads the screen. Also runs it with pipes like a script.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{LocalFlags, tcgetattr};

use crate::child::ChildGuard;
use crate::service::wait_for;

/// Variables that would change what the program does.
const REMOVED: [&str; 16] = [
    "HF_ENDPOINT",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "HF_TOKEN",
    "HUGGINGFACE_HUB_CACHE",
    "HUGGING_FACE_HUB_TOKEN",
    "MODEL_POOL_ADMIN_KEY",
    "MODEL_POOL_ADMIN_KEY_FILE",
    "MODEL_POOL_KEY",
    "MODEL_POOL_KEY_FILE",
    "MODEL_POOL_SERVER",
    "NO_COLOR",
    "TRANSFORMERS_OFFLINE",
    "XDG_CACHE_HOME",
    "XDG_STATE_HOME",
];

/// The folder is also the program's home, which isolates it from the tester's settings.
fn prepare(command: &mut Command, folder: &Path, env: &[(&str, &str)]) {
    command.current_dir(folder).env("HOME", folder);
    for name in REMOVED {
        command.env_remove(name);
    }
    command.envs(env.iter().copied());
}

/// Runs the program to its end, with these bytes on standard input.
pub fn piped(folder: &Path, words: &[&str], env: &[(&str, &str)], input: &[u8]) -> Output {
    let mut command = Command::new(crate::program());
    prepare(command.args(words), folder, env);
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipes.stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let bytes = input.to_vec();
    let writer = thread::spawn(move || {
        // The program may fail before it has read everything.
        let _ = stdin.write_all(&bytes);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// The program at a terminal.
pub struct Terminal {
    keys: File,
    child: ChildGuard,
    shown: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
    size: (u16, u16),
}

impl Terminal {
    /// Starts at a controlling terminal with this many columns, which delivers Ctrl-C.
    pub fn start(folder: &Path, words: &[&str], env: &[(&str, &str)], columns: u16) -> Terminal {
        Terminal::new(&crate::program(), folder, words, env, (columns, 24))
    }

    /// Another program, at a terminal with these columns and rows.
    pub fn new(
        program: &Path,
        folder: &Path,
        words: &[&str],
        env: &[(&str, &str)],
        (columns, rows): (u16, u16),
    ) -> Terminal {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pair = openpty(&size, None).unwrap();
        for end in [&pair.master, &pair.slave] {
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        }
        // Makes the terminal the session's controlling terminal, and then executes the program.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(program).args(words);
        prepare(&mut command, folder, &[("TERM", "xterm")]);
        command.envs(env.iter().copied());
        let of_slave = || Stdio::from(copy(&pair.slave));
        command.stdin(of_slave()).stdout(of_slave());
        let child = command.stderr(of_slave()).spawn().unwrap();
        drop(command);
        drop(pair.slave);
        let keys = File::from(pair.master);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (into, mut from) = (Arc::clone(&shown), keys.try_clone().unwrap());
        let reader = thread::spawn(move || {
            let mut chunk = [0; 4096];
            // Reading at the end of a terminal is an error.
            while let Ok(count @ 1..) = from.read(&mut chunk) {
                into.lock().unwrap().extend_from_slice(&chunk[..count]);
            }
        });
        Terminal {
            keys,
            child: ChildGuard(child),
            shown,
            reader: Some(reader),
            size: (columns, rows),
        }
    }

    /// The process that runs at the terminal.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The settings of the terminal, such as echo, which a program may change.
    pub fn settings(&self) -> String {
        let settings = tcgetattr(&self.keys).unwrap();
        format!(
            "{:?} {:?} {:?}",
            settings.input_flags, settings.output_flags, settings.local_flags
        )
    }

    /// The current screen, line by line.
    pub fn screen(&self) -> String {
        let (columns, rows) = self.size;
        let mut screen = vt100::Parser::new(rows, columns, 0);
        screen.process(&self.shown.lock().unwrap());
        screen.screen().contents()
    }

    /// Waits until the screen fulfils the condition, and returns it.
    pub fn wait_for_screen(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for(&format!("the screen to show {what}"), || {
                last = self.screen();
                is_so(&last)
            });
        }));
        if let Err(panic) = result {
            eprintln!("--- the screen ---\n{last}");
            std::panic::resume_unwind(panic);
        }
        last
    }

    /// Types keys. `\r` is the return key, `\x03` Ctrl-C, `\x04` Ctrl-D.
    pub fn keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// All output so far, with its escape sequences.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// Waits until the text has been shown.
    pub fn wait_for(&self, text: &str) {
        self.wait_for_times(text, 1);
    }

    /// Waits until the text has been shown this many times.
    pub fn wait_for_times(&self, text: &str, times: usize) {
        let mut last = String::new();
        let is_there = || {
            last = self.shown();
            last.matches(text).count() >= times
        };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for(&format!("the terminal to show {text:?}"), is_there);
        }));
        if let Err(panic) = result {
            eprintln!("--- the terminal ---\n{last:?}");
            std::panic::resume_unwind(panic);
        }
    }

    /// Waits until the program reads single keys. Ctrl-D typed before that is lost.
    pub fn wait_for_prompt(&self) {
        wait_for("the program to read keys", || {
            let settings = tcgetattr(&self.keys).unwrap();
            !settings.local_flags.contains(LocalFlags::ICANON)
        });
    }

    /// Waits for the end of the program, and returns its exit status and all output.
    pub fn end(mut self) -> (Option<i32>, String) {
        let mut status = None;
        wait_for("the program to end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        (status.and_then(|status| status.code()), self.shown())
    }
}

fn copy(end: &OwnedFd) -> OwnedFd {
    end.as_fd().try_clone_to_owned().unwrap()
}
