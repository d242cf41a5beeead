//! Sizes for people.

/// How large something is: one number and its unit.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let mut tenths = bytes.saturating_mul(10);
    let mut unit = 0;
    while tenths >= 10_240 && unit < UNITS.len() - 1 {
        tenths /= 1024;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_one_unit() {
        let sizes = [0, 1023, 1024, 1536, 1_048_576, 5_000_000_000, 5_000_000_000_000].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "4.6 GiB", "4656.6 GiB"]);
    }
}
