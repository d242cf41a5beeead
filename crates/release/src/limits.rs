//! Size limits of a release. Building checks the same limits as unpacking: a release that builds can be unpacked on a node.

pub use muster_core::release::dir::{FILE_LIMIT, SIZE_LIMIT};

/// Number of directories: each file may be alone in its directory.
pub const DIRECTORY_LIMIT: usize = FILE_LIMIT;
/// Parts of a path. A deeper path is a mistake, such as a directory that was copied into itself.
pub const DEPTH_LIMIT: usize = 32;
/// Bytes of a path. With the node's own directory in front, it must fit into PATH_MAX of Linux.
pub const PATH_LIMIT: usize = 512;
/// Compression window of a bundle, as a power of two: 4 MiB. The agent that unpacks the bundle needs as much memory.
pub const WINDOW_LOG: u32 = 22;
/// A bundle with a larger window is refused before the memory is allocated.
pub const WINDOW_LOG_LIMIT: u32 = 23;
/// Bytes of a bundle. Content that does not compress grows by far less than an eighth.
pub const BUNDLE_LIMIT: u64 = SIZE_LIMIT + SIZE_LIMIT / 8;

/// Checks a path of a release. Returns the problem as a phrase that follows the path in a message.
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
    path.contains('\0').then_some("contains a NUL byte")
}
