//! What a release may hold at most. Building refuses what unpacking would refuse, so that nobody pushes a release that no
//! node can take.

pub use muster_core::release_dir::{FILE_LIMIT, SIZE_LIMIT};

/// So many directories: each file may have one of its own.
pub const DIRECTORY_LIMIT: usize = FILE_LIMIT;
/// A path of more parts is a mistake, such as a directory that was copied into itself.
pub const DEPTH_LIMIT: usize = 32;
/// A longer path is refused; with the node's own directory before it, it must fit into what Linux takes.
pub const PATH_LIMIT: usize = 512;
/// A bundle is compressed with a window of so many bytes (as a power of two): 4 MiB. Whoever unpacks it needs as much
/// memory, which is an agent on a node that has other work.
pub const WINDOW_LOG: u32 = 22;
/// A bundle that asks for a larger window is refused before the memory is taken.
pub const WINDOW_LOG_LIMIT: u32 = 23;
/// A bundle is never much larger than its content.
pub const BUNDLE_LIMIT: u64 = SIZE_LIMIT + SIZE_LIMIT / 8;

/// Why a path cannot be one of a release; in words that go after the path.
pub(crate) fn path_problem(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        return Some("is empty");
    }
    if path.starts_with('/') {
        return Some("is absolute");
    }
    if path.len() > PATH_LIMIT {
        return Some("is longer than 512 bytes");
    }
    if path.split('/').any(|part| part == "..") {
        return Some("leads out of the release");
    }
    if path.split('/').any(|part| part.is_empty() || part == ".") {
        return Some("is not written in its shortest form");
    }
    if path.split('/').count() > DEPTH_LIMIT {
        return Some("has more than 32 parts");
    }
    path.contains('\0').then_some("has a byte that no file's name has")
}
