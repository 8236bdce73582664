//! Wall time as text.

/// Appends a Unix time in milliseconds as ISO 8601, UTC, to the millisecond. Years beyond 9999 and before
/// 0000 have no such text and are shown as the last and first moment that has.
/// Source: the calendar arithmetic of days since 0000-03-01, 400 years having 146097 of them.
pub(super) fn write_iso_time(out: &mut String, unix_ms: i64) {
    let unix_ms = unix_ms.clamp(FIRST_UNIX_MS, LAST_UNIX_MS);
    let (days, ms) = (unix_ms.div_euclid(DAY_MS), unix_ms.rem_euclid(DAY_MS));
    let days = days + DAYS_TO_1970;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months counted from March, so that the leap day is the last of its year.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
    let (second, ms) = (ms / 1_000 % 60, ms % 1_000);
    out.push_str(&format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"
    ));
}

const DAY_MS: i64 = 86_400_000;
/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: i64 = 719_468;
const FIRST_UNIX_MS: i64 = -62_167_219_200_000;
const LAST_UNIX_MS: i64 = 253_402_300_799_999;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_are_spelled_right() {
        for (unix_ms, wanted) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_709_251_200_000, "2024-03-01T00:00:00.000Z"),
            (1_785_196_800_123, "2026-07-28T00:00:00.123Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
            (i64::MIN, "0000-01-01T00:00:00.000Z"),
        ] {
            let mut out = String::new();
            write_iso_time(&mut out, unix_ms);
            assert_eq!(out, wanted);
        }
    }
}
