//! The Date field, written without an allocation. RFC 9110 §5.6.7, §6.6.1.

/// Bytes of a date: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) const DATE_BYTES: usize = 29;

const DAYS: &[u8; 21] = b"ThuFriSatSunMonTueWed";
const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";

/// The last date that was written, so that the calendar is done once a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct DateText {
    second: i64,
    text: [u8; DATE_BYTES],
}

impl DateText {
    pub(super) const fn new() -> Self {
        Self {
            second: i64::MIN,
            text: *b"Thu, 01 Jan 1970 00:00:00 GMT",
        }
    }

    /// The date at `unix_ms`. Years beyond 9999, which the form does not know, stay at 9999.
    pub(super) fn at(&mut self, unix_ms: i64) -> &[u8; DATE_BYTES] {
        let second = unix_ms.div_euclid(1_000).clamp(0, 253_402_300_799);
        if self.second != second {
            self.second = second;
            self.write(second);
        }
        &self.text
    }

    fn write(&mut self, second: i64) {
        let days = second.div_euclid(86_400);
        let of_day = second.rem_euclid(86_400);
        let (year, month, day) = civil(days);
        let three = |names: &[u8], at: i64| {
            let at = usize::try_from(at).unwrap_or(0) * 3;
            [names[at], names[at + 1], names[at + 2]]
        };
        self.text[..3].copy_from_slice(&three(DAYS, days.rem_euclid(7)));
        self.text[8..11].copy_from_slice(&three(MONTHS, month - 1));
        self.two(5, day);
        self.two(12, year / 100);
        self.two(14, year % 100);
        self.two(17, of_day / 3_600);
        self.two(20, of_day / 60 % 60);
        self.two(23, of_day % 60);
    }

    fn two(&mut self, at: usize, value: i64) {
        let digit = |value: i64| b'0' + u8::try_from(value % 10).unwrap_or(0);
        self.text[at] = digit(value / 10);
        self.text[at + 1] = digit(value);
    }
}

/// Year, month and day of a day since 1970-01-01, none of them before it. The year is made to begin
/// in March, so that the leap day comes last: 146,097 days are 400 years, 1,461 are 4.
const fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (second, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_827_696, "Tue, 29 Feb 2000 12:34:56 GMT"),
            (951_868_800, "Wed, 01 Mar 2000 00:00:00 GMT"),
            (1_767_225_599, "Wed, 31 Dec 2025 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (253_402_300_799, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            let mut date = DateText::new();
            assert_eq!(date.at(second * 1_000 + 999), text.as_bytes(), "{second}");
        }
        let mut date = DateText::new();
        assert_eq!(date.at(-5), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(date.at(i64::MAX)[12..16], *b"9999");
    }
}
