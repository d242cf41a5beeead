//! A program that was started: its output, its end, and signals to it.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub use muster_marked::{Process, Signal};

/// A program that runs, or has run. It is killed when this is dropped.
#[derive(Debug)]
pub struct Started {
    name: String,
    pid: u32,
    process: Process,
    seen: Arc<Seen>,
}

/// How a program ended, and all that it said.
#[derive(Clone, Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

#[derive(Debug, Default)]
struct Seen {
    so_far: Mutex<SoFar>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SoFar {
    lines: Vec<(Stream, String)>,
    exit: Option<ExitStatus>,
    /// Streams that have come to their end.
    closed: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Out,
    Err,
}

impl Started {
    /// Starts a program and reads what it says. What it is to read must be given already.
    pub fn new(name: impl Into<String>, command: &mut Command) -> Self {
        let name = name.into();
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let pid = child.id();
        let process = Process::open(pid).unwrap().expect("a child that was not waited for is there");
        let seen = Arc::new(Seen::default());
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        for (stream, reader) in [(Stream::Out, Box::new(out) as Box<dyn Read + Send>), (Stream::Err, Box::new(err))] {
            let seen = seen.clone();
            thread::spawn(move || seen.read(stream, reader));
        }
        let waiting = seen.clone();
        thread::spawn(move || waiting.wait(child));
        Self { name, pid, process, seen }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal).unwrap();
    }

    /// As Ctrl-C in a terminal does: to the whole process group, which it must lead.
    pub fn interrupt_group(&self) {
        let group = rustix::process::Pid::from_raw(i32::try_from(self.pid).unwrap()).unwrap();
        rustix::process::kill_process_group(group, Signal::INT).unwrap();
    }

    /// `kill -9`; returns when it has ended.
    pub fn kill(&self, deadline: Duration) {
        self.signal(Signal::KILL);
        self.seen.until(deadline, |so_far| so_far.exit).unwrap_or_else(|| panic!("{} does not die", self.name));
    }

    pub fn is_running(&self) -> bool {
        self.seen.so_far.lock().unwrap().exit.is_none()
    }

    /// Waits for a line that holds this text, among all that were and will be said; gives the line.
    pub fn says(&self, text: &str, deadline: Duration) -> String {
        self.says_after(0, text, deadline).1
    }

    /// The same, among what is said after so many lines; gives also the number of lines up to the one that was found.
    pub fn says_after(&self, skip: usize, text: &str, deadline: Duration) -> (usize, String) {
        let found = self.seen.until(deadline, |so_far| {
            let found = so_far.lines.iter().enumerate().skip(skip).find(|(_, (_, line))| line.contains(text));
            match found {
                Some((at, (_, line))) => Some(Some((at + 1, line.clone()))),
                // It will not be said any more.
                None if so_far.exit.is_some() && so_far.closed == 2 => Some(None),
                None => None,
            }
        });
        found.flatten().unwrap_or_else(|| panic!("{} did not say {text:?}; it said:\n{}", self.name, self.transcript()))
    }

    /// How many lines have been said.
    pub fn lines(&self) -> usize {
        self.seen.so_far.lock().unwrap().lines.len()
    }

    /// Waits for its end.
    pub fn ended(&self, deadline: Duration) -> Ended {
        let exit = self.seen.until(deadline, |so_far| so_far.exit);
        let status = exit.unwrap_or_else(|| panic!("{} did not end; it said:\n{}", self.name, self.transcript()));
        // A process that it has left behind may hold its output open; what the program itself said is there already,
        // or will be at once.
        self.seen.until(Duration::from_secs(5), |so_far| (so_far.closed == 2).then_some(()));
        let so_far = self.seen.so_far.lock().unwrap();
        let of = |stream| {
            let lines = so_far.lines.iter().filter(|(of, _)| *of == stream);
            lines.fold(String::new(), |text, (_, line)| text + line + "\n")
        };
        Ended { status, stdout: of(Stream::Out), stderr: of(Stream::Err) }
    }

    /// All that was said, in the order in which it was heard.
    pub fn transcript(&self) -> String {
        let so_far = self.seen.so_far.lock().unwrap();
        let mut text = String::new();
        for (stream, line) in &so_far.lines {
            let mark = if *stream == Stream::Err { "!" } else { " " };
            let _ = writeln!(text, "{mark} {line}");
        }
        text
    }
}

impl Ended {
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("it was ended by a signal: {self:?}"))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.process.signal(Signal::KILL);
        if thread::panicking() {
            let transcript = self.transcript();
            #[expect(clippy::print_stderr, reason = "the test has failed, and somebody wants to know why")]
            {
                eprintln!("---- {} (pid {}) said:\n{transcript}----", self.name, self.pid);
            }
        }
    }
}

impl Seen {
    fn read(&self, stream: Stream, reader: Box<dyn Read + Send>) {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
            let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
            self.change(|so_far| so_far.lines.push((stream, text)));
            line.clear();
        }
        self.change(|so_far| so_far.closed += 1);
    }

    fn wait(&self, mut child: Child) {
        let exit = child.wait().unwrap();
        self.change(|so_far| so_far.exit = Some(exit));
    }

    fn change(&self, change: impl FnOnce(&mut SoFar)) {
        change(&mut self.so_far.lock().unwrap());
        self.changed.notify_all();
    }

    /// Waits until there is an answer. None: not in time.
    fn until<T>(&self, deadline: Duration, answer: impl Fn(&SoFar) -> Option<T>) -> Option<T> {
        let end = Instant::now() + deadline;
        let mut so_far = self.so_far.lock().unwrap();
        loop {
            if let Some(answer) = answer(&so_far) {
                return Some(answer);
            }
            let left = end.checked_duration_since(Instant::now())?;
            so_far = self.changed.wait_timeout(so_far, left).unwrap().0;
        }
    }
}
