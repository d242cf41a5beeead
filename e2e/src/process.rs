//! A child process: its output, exit and signals.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub use muster_marked::{Process, Signal};

/// A child process. Dropping it kills it.
#[derive(Debug)]
pub struct ChildProcess {
    name: String,
    pid: u32,
    process: Process,
    watch: Arc<OutputWatch>,
}

/// Exit status and output of a process.
#[derive(Clone, Debug)]
pub struct ExitResult {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

#[derive(Debug, Default)]
struct OutputWatch {
    output: Mutex<ProcessOutput>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ProcessOutput {
    lines: Vec<(Stream, String)>,
    exit: Option<ExitStatus>,
    /// Number of closed output streams.
    closed: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Out,
    Err,
}

impl ChildProcess {
    /// Starts a process and reads its output.
    pub fn new(name: impl Into<String>, command: &mut Command) -> Self {
        let name = name.into();
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let pid = child.id();
        let process = Process::open(pid).unwrap().expect("a child that was not waited for is there");
        let watch = Arc::new(OutputWatch::default());
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        for (stream, reader) in [(Stream::Out, Box::new(out) as Box<dyn Read + Send>), (Stream::Err, Box::new(err))] {
            let watch = watch.clone();
            thread::spawn(move || watch.read(stream, reader));
        }
        let waiting = watch.clone();
        thread::spawn(move || waiting.wait(child));
        Self { name, pid, process, watch }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal).unwrap();
    }

    /// Sends SIGINT to its process group, as Ctrl-C in a terminal does. It must be the group leader.
    pub fn interrupt_group(&self) {
        let group = rustix::process::Pid::from_raw(i32::try_from(self.pid).unwrap()).unwrap();
        rustix::process::kill_process_group(group, Signal::INT).unwrap();
    }

    /// `kill -9`. The process has ended when this returns.
    pub fn kill(&self, deadline: Duration) {
        self.signal(Signal::KILL);
        self.watch.until(deadline, |output| output.exit).unwrap_or_else(|| panic!("{} was not killed", self.name));
    }

    pub fn is_running(&self) -> bool {
        self.watch.output.lock().unwrap().exit.is_none()
    }

    /// Waits for a line with this text in the past or future output. Returns the line.
    pub fn wait_for_output(&self, text: &str, deadline: Duration) -> String {
        self.wait_for_output_after(0, text, deadline).1
    }

    /// The same, after skipping this many lines. Also returns the number of lines up to the found one.
    pub fn wait_for_output_after(&self, skip: usize, text: &str, deadline: Duration) -> (usize, String) {
        let found = self.watch.until(deadline, |output| {
            let found = output.lines.iter().enumerate().skip(skip).find(|(_, (_, line))| line.contains(text));
            match found {
                Some((at, (_, line))) => Some(Some((at + 1, line.clone()))),
                // The output is complete.
                None if output.exit.is_some() && output.closed == 2 => Some(None),
                None => None,
            }
        });
        found.flatten().unwrap_or_else(|| {
            panic!(
                "{} did not print {text:?}; its output:
{}",
                self.name,
                self.transcript()
            )
        })
    }

    /// Number of lines so far.
    pub fn lines(&self) -> usize {
        self.watch.output.lock().unwrap().lines.len()
    }

    /// Waits for its exit.
    pub fn wait_exit(&self, deadline: Duration) -> ExitResult {
        let exit = self.watch.until(deadline, |output| output.exit);
        let status = exit.unwrap_or_else(|| {
            panic!(
                "{} did not exit; its output:
{}",
                self.name,
                self.transcript()
            )
        });
        // A leftover child may hold the output open; the output of the process itself arrives at once.
        self.watch.until(Duration::from_secs(5), |output| (output.closed == 2).then_some(()));
        let output = self.watch.output.lock().unwrap();
        let of = |stream| {
            let lines = output.lines.iter().filter(|(of, _)| *of == stream);
            lines.fold(String::new(), |text, (_, line)| text + line + "\n")
        };
        ExitResult { status, stdout: of(Stream::Out), stderr: of(Stream::Err) }
    }

    /// The output so far, in order of arrival.
    pub fn transcript(&self) -> String {
        let output = self.watch.output.lock().unwrap();
        let mut text = String::new();
        for (stream, line) in &output.lines {
            let mark = if *stream == Stream::Err { "!" } else { " " };
            let _ = writeln!(text, "{mark} {line}");
        }
        text
    }
}

impl ExitResult {
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("killed by a signal: {self:?}"))
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.process.signal(Signal::KILL);
        if thread::panicking() {
            let transcript = self.transcript();
            #[expect(clippy::print_stderr, reason = "shows the output of a failed test")]
            {
                eprintln!(
                    "---- output of {} (pid {}):
{transcript}----",
                    self.name, self.pid
                );
            }
        }
    }
}

impl OutputWatch {
    fn read(&self, stream: Stream, reader: Box<dyn Read + Send>) {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
            let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
            self.change(|output| output.lines.push((stream, text)));
            line.clear();
        }
        self.change(|output| output.closed += 1);
    }

    fn wait(&self, mut child: Child) {
        let exit = child.wait().unwrap();
        self.change(|output| output.exit = Some(exit));
    }

    fn change(&self, change: impl FnOnce(&mut ProcessOutput)) {
        change(&mut self.output.lock().unwrap());
        self.changed.notify_all();
    }

    /// Waits for a value; None after the deadline.
    fn until<T>(&self, deadline: Duration, answer: impl Fn(&ProcessOutput) -> Option<T>) -> Option<T> {
        let end = Instant::now() + deadline;
        let mut output = self.output.lock().unwrap();
        loop {
            if let Some(answer) = answer(&output) {
                return Some(answer);
            }
            let left = end.checked_duration_since(Instant::now())?;
            output = self.changed.wait_timeout(output, left).unwrap().0;
        }
    }
}
