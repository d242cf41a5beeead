//! Suggestions for misspelt words ("did you mean …?").

/// Longest word to compare. The distance costs the product of both lengths, and input may hold anything.
const LONGEST: usize = 64;
/// Maximum number of known words to compare with. A design may have a hundred thousand names, and as many misspelt
/// ones.
const MOST_WORDS: usize = 500;

/// The known word closest to a misspelt one, if any is close enough.
pub fn nearest<'k>(written: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let written = letters(written)?;
    known
        .into_iter()
        .take(MOST_WORDS)
        .filter_map(|word| Some((word, letters(word)?)))
        .filter_map(|(word, letters)| {
            // Up to a third of a word may be wrong. Beyond that a suggestion is more likely wrong than right.
            let most = letters.len().max(written.len()).div_ceil(3);
            let possible = letters.len().abs_diff(written.len()) <= most;
            let distance = possible.then(|| distance(&written, &letters)).filter(|&distance| distance <= most)?;
            Some((distance, word))
        })
        // Of two equally close words the first by name wins, so the result does not depend on the order.
        .min()
        .map(|(_, word)| word)
}

fn letters(word: &str) -> Option<Vec<char>> {
    let letters: Vec<char> = word.chars().flat_map(char::to_lowercase).take(LONGEST + 1).collect();
    (letters.len() <= LONGEST).then_some(letters)
}

/// Number of letters changed, added, removed or swapped with a neighbour (optimal string alignment distance).
fn distance(a: &[char], b: &[char]) -> usize {
    // Three rows of the table are enough: a swap reaches two rows back.
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let changed = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = changed.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] = ["cardinality", "flavor", "profile", "labels", "after"];

    #[test]
    fn nearest_word_is_found() {
        for (written, meant) in [
            ("cardinalty", Some("cardinality")),
            ("Cardinality", Some("cardinality")),
            ("flavour", Some("flavor")),
            ("falvor", Some("flavor")),
            ("label", Some("labels")),
            ("afetr", Some("after")),
            ("colour", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, KNOWN), meant, "{written:?}");
        }
    }

    #[test]
    fn swap_counts_as_one() {
        let chars = |word: &str| word.chars().collect::<Vec<_>>();
        assert_eq!(distance(&chars("falvor"), &chars("flavor")), 1);
        assert_eq!(distance(&chars("kitten"), &chars("sitting")), 3);
        assert_eq!(distance(&chars(""), &chars("abc")), 3);
    }
}
