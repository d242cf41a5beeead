//! Reading files that content has written, and that may therefore hold anything: never more than fits.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Of a longer line only so much is given. What would come next is shown by nobody, and could be half a secret.
const LINE: u64 = 1024 * 1024;

/// Gives each line that holds something. A file that is not there has none.
pub(crate) fn for_each_line(path: &Path, mut take: impl FnMut(&[u8])) {
    let Ok(file) = File::open(path) else { return };
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    let mut goes_on = false;
    loop {
        line.clear();
        match reader.by_ref().take(LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = line.trim_ascii_end();
                if !text.is_empty() && !goes_on {
                    take(text);
                }
                goes_on = !line.ends_with(b"\n");
            }
        }
    }
}

/// The text of a file, up to a limit. A file that is not there has none.
pub(crate) fn text(path: &Path, limit: u64) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    if read.is_err() {
        return String::new();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_long_lines_the_beginning_is_given_and_of_empty_ones_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let long = "x".repeat(3 * 1024 * 1024 / 2);
        std::fs::write(file.path(), format!("a\n\n{long}\r\nb")).unwrap();
        let mut lengths = Vec::new();
        for_each_line(file.path(), |line| lengths.push(line.len()));
        assert_eq!(lengths, [1, 1024 * 1024, 1]);
        assert_eq!(text(file.path(), 3), "a\n\n");
        assert_eq!(text(Path::new("/nonexistent"), 3), "");
    }
}
