//! Reads `/proc/<pid>/stat`.

use std::fs;

/// State of a process; see proc_pid_stat(5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    state: char,
    pub parent: i32,
    pub group: i32,
    /// Start time in clock ticks since boot.
    pub started: u64,
}

impl Stat {
    /// `None`: there is no such process.
    pub fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// `pid (name) state ppid pgrp …`; the name may contain any character, so fields are counted from the last parenthesis.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<_> = line.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }

    /// True for a zombie, which is still listed.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// All pids in `/proc`.
pub fn pids() -> impl Iterator<Item = i32> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    names.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_may_contain_parentheses() {
        let line =
            "77 (a) Z 1 (b) S 5 76 75 34816 76 4194304 100 0 0 0 0 0 0 0 20 0 1 0 123456 1000 10 18446744073709551615";
        let expected = Stat { state: 'S', parent: 5, group: 76, started: 123_456 };
        assert_eq!(Stat::parse(line), Some(expected));
        assert!(!expected.has_ended());
        assert_eq!(Stat::parse("77 (a) Z 1"), None);
    }

    #[test]
    fn own_process_is_listed_and_running() {
        let own = std::process::id().cast_signed();
        assert!(pids().any(|pid| pid == own));
        assert!(!Stat::read(own).unwrap().has_ended());
        assert_eq!(Stat::read(0), None);
    }
}
