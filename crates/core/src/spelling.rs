//! "Did you mean …?"

/// Longer words are not compared: the distance costs the product of both lengths, and files may hold anything.
const LONGEST: usize = 64;
/// More words are not looked through: a design may have a hundred thousand names, and as many that are misspelt.
const MOST_WORDS: usize = 500;

/// The one of the known words that was probably meant, if any is near enough.
pub fn nearest<'k>(written: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let written = letters(written)?;
    known
        .into_iter()
        .take(MOST_WORDS)
        .filter_map(|word| Some((word, letters(word)?)))
        .filter_map(|(word, letters)| {
            // A third of a word may be wrong: more, and the guess would be as wrong as the word.
            let most = letters.len().max(written.len()).div_ceil(3);
            let possible = letters.len().abs_diff(written.len()) <= most;
            let distance = possible.then(|| distance(&written, &letters)).filter(|&distance| distance <= most)?;
            Some((distance, word))
        })
        // Of two that are equally near the first by name: the guess is the same in whatever order they are known.
        .min()
        .map(|(_, word)| word)
}

fn letters(word: &str) -> Option<Vec<char>> {
    let letters: Vec<char> = word.chars().flat_map(char::to_lowercase).take(LONGEST + 1).collect();
    (letters.len() <= LONGEST).then_some(letters)
}

/// How many letters must be changed, added, left out or swapped with their neighbour (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    // Three rows of the table are all that is looked at: a swap reaches two rows back.
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
    fn finds_what_was_meant() {
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
    fn a_swap_is_one_mistake() {
        let chars = |word: &str| word.chars().collect::<Vec<_>>();
        assert_eq!(distance(&chars("falvor"), &chars("flavor")), 1);
        assert_eq!(distance(&chars("kitten"), &chars("sitting")), 3);
        assert_eq!(distance(&chars(""), &chars("abc")), 3);
    }
}
