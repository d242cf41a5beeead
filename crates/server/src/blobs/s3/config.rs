//! Place of blobs: a directory, or a bucket with its options.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

/// Scheme of a bucket in `--blobs`.
const SCHEME: &str = "s3://";

/// Place of the blobs of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlobPlace {
    Directory(PathBuf),
    S3(S3Place),
}

/// A prefix in a bucket of S3, or of a service that speaks its protocol.
#[derive(Clone, PartialEq, Eq)]
pub struct S3Place {
    pub bucket: String,
    /// Without a `/` at its ends; empty: the whole bucket.
    pub prefix: String,
    /// The usual variables, such as `AWS_ACCESS_KEY_ID`, with their values.
    pub variables: Vec<(String, String)>,
    /// Directory of temporary files, and of copies of bundles.
    pub local: PathBuf,
    pub timing: S3Timing,
}

/// Time limits of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Timing {
    pub connect: Duration,
    /// Of one attempt, with the body. A part has at most 8 MiB.
    pub request: Duration,
    /// Attempts after the first one.
    pub retries: usize,
    /// Wait before the first retry; it doubles, with jitter.
    pub backoff: Duration,
}

impl Default for S3Timing {
    /// A service that is down is reported after at most two minutes, and one that refuses connections after six seconds.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            request: Duration::from_secs(30),
            retries: 5,
            backoff: Duration::from_millis(200),
        }
    }
}

/// Invalid value of `--blobs`.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum BlobPlaceError {
    #[error("{text:?} names no bucket: expected s3://BUCKET or s3://BUCKET/PREFIX")]
    NoBucket { text: String },
    #[error(
        "{text:?} is no path in a bucket: a part of it is empty, `.` or `..`, or has a character that is not printable"
    )]
    Prefix { text: String },
}

impl From<PathBuf> for BlobPlace {
    fn from(directory: PathBuf) -> Self {
        Self::Directory(directory)
    }
}

impl From<&Path> for BlobPlace {
    fn from(directory: &Path) -> Self {
        Self::Directory(directory.to_owned())
    }
}

impl BlobPlace {
    /// Parses `s3://BUCKET/PREFIX` or a directory. Of the variables, those with the prefix `AWS_` are kept for a bucket.
    pub fn parse(
        text: &Path,
        local: &Path,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, BlobPlaceError> {
        let Some(rest) = text.to_str().and_then(|text| text.strip_prefix(SCHEME)) else {
            return Ok(Self::Directory(text.to_owned()));
        };
        let text = || text.display().to_string();
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(BlobPlaceError::NoBucket { text: text() });
        }
        let prefix = prefix.trim_end_matches('/');
        let is_legal = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(char::is_control);
        if !prefix.is_empty() && !prefix.split('/').all(is_legal) {
            return Err(BlobPlaceError::Prefix { text: text() });
        }
        Ok(Self::S3(S3Place {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            variables: variables.into_iter().filter(|(name, _)| name.starts_with("AWS_")).collect(),
            local: local.to_owned(),
            timing: S3Timing::default(),
        }))
    }

    /// The place with an absolute path, as other replicas show it.
    pub(crate) fn absolute(&self) -> String {
        match self {
            Self::Directory(path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string(),
            Self::S3(place) => place.to_string(),
        }
    }
}

impl fmt::Display for BlobPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(f),
            Self::S3(place) => place.fmt(f),
        }
    }
}

impl fmt::Display for S3Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix.as_str() {
            "" => write!(f, "{SCHEME}{}", self.bucket),
            prefix => write!(f, "{SCHEME}{}/{prefix}", self.bucket),
        }
    }
}

/// Without the values of variables: some are secrets.
impl fmt::Debug for S3Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.variables.iter().map(|(name, _)| name.as_str()).collect();
        let mut shown = f.debug_struct("S3Place");
        shown.field("place", &self.to_string()).field("variables", &names).field("timing", &self.timing);
        shown.finish_non_exhaustive()
    }
}

impl S3Place {
    /// Value of a variable; none if it is empty.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        let found = self.variables.iter().find(|(known, _)| known == name)?;
        Some(found.1.as_str()).filter(|value| !value.is_empty())
    }

    /// Address of the service: of a compatible one, or else of AWS.
    pub(super) fn endpoint(&self) -> String {
        let given = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
        let region = || self.variable("AWS_REGION").or(self.variable("AWS_DEFAULT_REGION")).unwrap_or("us-east-1");
        match given.iter().find_map(|name| self.variable(name)) {
            Some(url) => url.to_owned(),
            None => format!("https://s3.{}.amazonaws.com", region()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_a_bucket_with_prefix_or_a_directory() {
        let local = Path::new("/var/lib/muster/blobs");
        let secret = ("AWS_SECRET_ACCESS_KEY".to_owned(), "hunter2".to_owned());
        let parse = |text: &str| {
            BlobPlace::parse(Path::new(text), local, [secret.clone(), ("HOME".to_owned(), "/root".to_owned())])
        };
        assert_eq!(parse("/srv/blobs").unwrap(), BlobPlace::Directory("/srv/blobs".into()));
        for (text, shown) in
            [("s3://fleet", "s3://fleet"), ("s3://fleet/", "s3://fleet"), ("s3://fleet/a/b/", "s3://fleet/a/b")]
        {
            let place = parse(text).unwrap();
            assert_eq!(place.to_string(), shown);
            let debug = format!("{place:?}");
            assert!(debug.contains("AWS_SECRET_ACCESS_KEY") && !debug.contains("hunter2"), "{debug}");
            assert!(!debug.contains("HOME"), "{debug}");
        }
        assert!(matches!(parse("s3://"), Err(BlobPlaceError::NoBucket { .. })));
        assert!(matches!(parse("s3:///a"), Err(BlobPlaceError::NoBucket { .. })));
        for text in ["s3://fleet/../a", "s3://fleet/a//b", "s3://fleet/a\nb"] {
            assert!(matches!(parse(text), Err(BlobPlaceError::Prefix { .. })), "{text}");
        }
    }

    #[test]
    fn endpoint_is_given_or_of_the_region() {
        let place = |variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let BlobPlace::S3(place) = BlobPlace::parse(Path::new("s3://b"), Path::new("/"), variables).unwrap() else {
                unreachable!()
            };
            place.endpoint()
        };
        assert_eq!(place(&[]), "https://s3.us-east-1.amazonaws.com");
        assert_eq!(place(&[("AWS_REGION", "eu-central-1")]), "https://s3.eu-central-1.amazonaws.com");
        assert_eq!(place(&[("AWS_ENDPOINT_URL", "https://minio:9000")]), "https://minio:9000");
    }
}
