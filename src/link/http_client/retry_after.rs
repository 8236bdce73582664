//! `Retry-After`: seconds, or a date. Source: RFC 9110 §10.2.3, §5.6.7.

/// Milliseconds from now until the server wants to be asked again; zero for a date of the past. `None` when
/// the value is neither form. Of the three forms of a date only the one that may still be sent is read.
pub(super) fn retry_after_ms(value: &str, unix_ms: i64) -> Option<u64> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // Too many digits for a number still mean: not soon.
        return Some(
            value
                .parse::<u64>()
                .unwrap_or(u64::MAX)
                .saturating_mul(1_000),
        );
    }
    let at = date_ms(value)?;
    Some(u64::try_from(at.saturating_sub(unix_ms)).unwrap_or(0))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` as Unix time in milliseconds.
fn date_ms(text: &str) -> Option<i64> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let (_, rest) = text.split_once(", ")?;
    let mut parts = rest.split(' ');
    let day = number(parts.next()?, 1, 31)?;
    let name = parts.next()?;
    let at = MONTHS
        .find(name)
        .filter(|at| name.len() == 3 && at % 3 == 0)?;
    let month = i64::try_from(at / 3).ok()? + 1;
    let year = number(parts.next()?, 1_970, 9_999)?;
    let mut clock = parts.next()?.split(':');
    let hour = number(clock.next()?, 0, 23)?;
    let minute = number(clock.next()?, 0, 59)?;
    let second = number(clock.next()?, 0, 60)?;
    if parts.next()? != "GMT" || parts.next().is_some() || clock.next().is_some() {
        return None;
    }
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    Some(seconds * 1_000)
}

fn number(text: &str, least: i64, most: i64) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let value = text.parse().ok().filter(|_| digits)?;
    (least..=most).contains(&value).then_some(value)
}

/// Days since 1970-01-01. The year is made to begin in March, so that the leap day comes last.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leaps = year / 4 - year / 100 + year / 400;
    year * 365 + leaps + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let now = 784_111_777_000;
        let table = [
            ("2", Some(2_000)),
            (" 0 ", Some(0)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30_000)),
            ("Sat, 05 Nov 1994 08:49:37 GMT", Some(0)),
            ("Wed, 01 Mar 1995 00:00:00 GMT", Some(9_904_223_000)),
            ("Thu, 29 Feb 1996 00:00:00 GMT", Some(41_440_223_000)),
            ("Sun, 06 Nov 1994 08:49:37", None),
            ("Sun, 06 anF 1994 08:49:37 GMT", None),
            ("Sunday, 06-Nov-94 08:49:37 GMT", None),
            ("-1", None),
            ("1.5", None),
            ("", None),
            ("soon", None),
        ];
        for (value, expected) in table {
            assert_eq!(retry_after_ms(value, now), expected, "{value:?}");
        }
    }
}
