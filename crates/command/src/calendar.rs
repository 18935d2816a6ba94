//! Points in time as people write them, in UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// A point in time taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    /// Year.
    pub year: u64,
    /// Month, from 1.
    pub month: u64,
    /// Day of the month, from 1.
    pub day: u64,
    /// Hour.
    pub hour: u64,
    /// Minute.
    pub minute: u64,
    /// Second; leap seconds are not counted.
    pub second: u64,
    /// Nanoseconds of the second.
    pub nanos: u32,
    days: u64,
}

impl Civil {
    /// Takes a system time apart; times before 1970 become 1970.
    pub fn of(time: SystemTime) -> Self {
        Self::of_unix(time.duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// Takes the time since 1970 apart.
    pub fn of_unix(since: Duration) -> Self {
        let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
        // Years that begin in March have their leap day at the end; 400 of them are 146,097 days.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        Self {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * march_month + 2) / 5 + 1,
            hour: seconds / 3_600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            nanos: since.subsec_nanos(),
            days,
        }
    }

    /// `2026/11/21 05:16:15:898`, as log lines begin.
    pub fn log_stamp(&self) -> String {
        let millis = self.nanos / 1_000_000;
        let Self { year, month, day, hour, minute, second, .. } = self;
        format!("{year}/{month:02}/{day:02} {hour:02}:{minute:02}:{second:02}:{millis:03}")
    }

    /// `Sat, 21 Nov 2026 05:16:16 GMT`.
    pub fn http_date(&self) -> String {
        let weekday = DAYS.get((self.days % 7) as usize).copied().unwrap_or_default();
        let month = MONTHS.get((self.month - 1) as usize).copied().unwrap_or_default();
        let Self { year, day, hour, minute, second, .. } = self;
        format!("{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
    }

    /// `2026-11-21T04:42:22`.
    pub fn iso(&self) -> String {
        let Self { year, month, day, hour, minute, second, .. } = self;
        format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
    }

    /// The same with microseconds: `2026-11-21T04:42:22.123456`.
    pub fn iso_micros(&self) -> String {
        format!("{}.{:06}", self.iso(), self.nanos / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, millis: u64) -> Civil {
        Civil::of_unix(Duration::from_millis(seconds * 1000 + millis))
    }

    #[test]
    fn known_points_in_time() {
        assert_eq!(at(0, 0).http_date(), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(at(951_782_400, 7).iso_micros(), "2000-02-29T00:00:00.007000");
        assert_eq!(at(951_782_400, 0).iso(), "2000-02-29T00:00:00");
        assert_eq!(at(1_795_238_175, 898).log_stamp(), "2026/11/21 05:16:15:898");
        assert_eq!(at(1_795_238_176, 0).http_date(), "Sat, 21 Nov 2026 05:16:16 GMT");
        assert_eq!(at(4_107_542_399, 0).iso(), "2100-02-28T23:59:59");
        assert_eq!(at(4_107_542_400, 0).iso(), "2100-03-01T00:00:00");
    }

    #[test]
    fn days_follow_one_another() {
        let mut last = at(0, 0);
        for day in 1..150_000 {
            let next = at(day * 86_400, 0);
            let same_month = (next.year, next.month, next.day) == (last.year, last.month, last.day + 1);
            let new_month = next.day == 1 && (next.year, next.month) == (last.year, last.month + 1) && last.day >= 28;
            let new_year = (next.month, next.day, last.month, last.day) == (1, 1, 12, 31) && next.year == last.year + 1;
            assert!(same_month || new_month || new_year, "{last:?} {next:?}");
            last = next;
        }
    }
}
