//! The part of something that a reader wants: the header `Range`, as far as anybody needs it.

use std::ops::Range;

/// What a reader gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    Some(Range<u64>),
    /// It begins behind the end.
    StaleView,
}

impl Part {
    /// Understands `bytes=a-b`, `bytes=a-` and `bytes=-n`. Whatever else there is gets the whole, which every reader must be
    /// able to take.
    pub(super) fn of(header: Option<&str>, size: u64) -> Self {
        let Some((first, last)) = header.and_then(|text| text.trim().strip_prefix("bytes=")?.split_once('-')) else {
            return Part::Whole;
        };
        let number = |text: &str| {
            let text = text.trim();
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            // A number that is too large is as good as the largest.
            digits.then(|| text.parse().unwrap_or(u64::MAX))
        };
        match (first.trim().is_empty(), number(first), last.trim().is_empty(), number(last)) {
            (false, Some(first), true, None) if first < size => Part::Some(first..size),
            (false, Some(first), false, Some(last)) if first <= last && first < size => {
                Part::Some(first..size.min(last.saturating_add(1)))
            }
            (false, Some(first), false, Some(last)) if first > last => Part::Whole,
            (true, None, false, Some(count)) if count > 0 && size > 0 => Part::Some(size.saturating_sub(count)..size),
            (false, Some(_), true, None) | (false, Some(_), false, Some(_)) | (true, None, false, Some(_)) => {
                Part::StaleView
            }
            _ => Part::Whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_are_as_the_standard_says() {
        let table = [
            (None, Part::Whole),
            (Some("bytes=0-"), Part::Some(0..10)),
            (Some("bytes=0-0"), Part::Some(0..1)),
            (Some("bytes=3-5"), Part::Some(3..6)),
            (Some(" bytes=3-99999999999999999999999"), Part::Some(3..10)),
            (Some("bytes=9-"), Part::Some(9..10)),
            (Some("bytes=10-"), Part::StaleView),
            (Some("bytes=10-20"), Part::StaleView),
            (Some("bytes=99999999999999999999999-"), Part::StaleView),
            (Some("bytes=-3"), Part::Some(7..10)),
            (Some("bytes=-30"), Part::Some(0..10)),
            (Some("bytes=-0"), Part::StaleView),
            // Not understood, or more than one: the whole.
            (Some("bytes=5-3"), Part::Whole),
            (Some("bytes=0-1,3-4"), Part::Whole),
            (Some("bytes=-"), Part::Whole),
            (Some("bytes=a-b"), Part::Whole),
            (Some("bytes=+1-2"), Part::Whole),
            (Some("lines=1-2"), Part::Whole),
            (Some(""), Part::Whole),
        ];
        for (header, part) in table {
            assert_eq!(Part::of(header, 10), part, "{header:?}");
        }
        assert_eq!(Part::of(Some("bytes=0-"), 0), Part::StaleView);
        assert_eq!(Part::of(Some("bytes=-1"), 0), Part::StaleView);
    }

    proptest! {
        #[test]
        fn no_header_gives_a_part_that_is_not_there(header in "(bytes=)?[0-9a, +-]{0,30}", size in 0_u64..1000) {
            if let Part::Some(part) = Part::of(Some(&header), size) {
                prop_assert!(part.start < part.end && part.end <= size, "{part:?}");
            }
        }
    }
}
