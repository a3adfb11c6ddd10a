//! What read-ahead may still cost: an account in pages.
//!
//! A page that is read ahead is paid for when it is read. If it is used, its price comes back with
//! a bonus; if not, it does not. A demanded page earns a little, so that an empty account can try
//! again. So of `d` demanded and `h` used pages at most `d / 16 + h / 2` were in vain, beside what the
//! account began with: less than half of what was of use. That comes by and by, so that a short program is within half, too.

/// An amount, in sixteenths of a page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Amount(i64);

/// One page.
const PAGE: i64 = 16;

impl Amount {
    pub(super) const fn pages(pages: u64) -> Self {
        Self(pages as i64 * PAGE)
    }

    /// What a demanded page earns. One page in sixteen read in vain is 6 % more pages, and well below 1 % more
    /// time where reading on costs a tenth of a read.
    pub(super) const DEMAND: Self = Self(PAGE / 16);

    /// The largest bonus of a used page: read-ahead of which a third is in vain keeps itself up.
    pub(super) const BONUS_MAX: Self = Self(PAGE / 2);

    /// What a used page brings for which reading it alone takes `alone` and reading it along with
    /// another `along`: half of what is saved, as pages, at most [`Self::BONUS_MAX`].
    pub(super) fn bonus(alone: u64, along: u64) -> Self {
        let saved = alone.saturating_sub(along).saturating_mul(PAGE as u64 / 2);
        Self((saved / along.max(1)).min(Self::BONUS_MAX.0 as u64) as i64)
    }

    /// The price of `pages` pages with so much on each.
    pub(super) const fn back(pages: u64, bonus: Self) -> Self {
        Self(pages as i64 * (PAGE + bonus.0))
    }

    /// Half of it.
    pub(super) const fn half(self) -> Self {
        Self(self.0 / 2)
    }
}

/// The deepest debt: a phase that turns sequential is tried within 256 faults.
const DEBT_MAX: Amount = Amount(-16 * PAGE);

/// An account, which holds at most so much, so that a good past does not pay for a long bad time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    credit: Amount,
    most: Amount,
    /// What it still gets before anything is of use: [`START`](Self::START) with each demanded page.
    start: Amount,
}

impl Account {
    /// Of what it begins with, what a demanded page brings: so long, with [`Amount::DEMAND`], at most half as many pages are in
    /// vain as are demanded. Given at once it was half again the pages of `none` on programs that nearly fit.
    const START: Amount = Amount(PAGE * 7 / 16);

    pub(super) fn new(credit: Amount, most: Amount) -> Self {
        Self {
            credit: credit.min(most),
            most,
            start: Amount(0),
        }
    }

    /// An account that gets the rest of `in_all` by and by.
    pub(super) fn starting(credit: Amount, in_all: Amount, most: Amount) -> Self {
        let start = Amount((in_all.0.min(most.0) - credit.0).max(0));
        Self {
            start,
            ..Self::new(credit, most)
        }
    }

    /// A page was demanded.
    pub(super) fn demanded(&mut self) {
        let part = Self::START.min(self.start);
        self.start.0 -= part.0;
        self.earn(Amount(Amount::DEMAND.0 + part.0));
    }

    pub(super) fn earn(&mut self, amount: Amount) {
        self.credit = Amount(self.credit.0 + amount.0).min(self.most);
    }

    /// Earns as much of `amount` as was paid and not earned again; returns the rest.
    pub(super) fn fill(&mut self, amount: Amount) -> Amount {
        let paid = (self.most.0 - self.start.0 - self.credit.0).max(0);
        let room = Amount(paid).min(amount);
        self.credit.0 += room.0;
        Amount(amount.0 - room.0)
    }

    /// May lead into debt: what is charged has happened. No deeper than [`DEBT_MAX`].
    pub(super) fn pay(&mut self, amount: Amount) {
        self.credit = Amount(self.credit.0 - amount.0).max(DEBT_MAX);
    }

    /// Whether it has so much that what is paid from it is mostly of use: three quarters of the most it holds. A choice; from a quarter on a
    /// walk down columns of 1000 rows of 4 pages read 1.65 times `none`'s pages, where streams followed their objects always 2.8 times
    /// (simulated: rows of 7,448 bytes at 90 % of their size).
    pub(super) const fn is_rich(&self) -> bool {
        self.credit.0 >= self.most.0 * 3 / 4
    }

    /// Whether it has so much that a few pages more are worth looking at: 3/8 of the most it holds. A choice.
    pub(super) const fn is_well_off(&self) -> bool {
        self.credit.0 >= self.most.0 * 3 / 8
    }

    pub(super) const fn credit(&self) -> Amount {
        self.credit
    }

    /// Whole pages that it can pay for.
    pub(super) fn affords(&self) -> u32 {
        u32::try_from(self.credit.0.max(0) / PAGE).unwrap_or(u32::MAX)
    }

    /// The account may hold `most` from now on.
    pub(super) fn resize(&mut self, most: Amount) {
        // What it had no room for when it began.
        self.start.0 += (most.0 - self.most.0).max(0);
        self.most = most;
        self.credit = self.credit.min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_vain_stays_below_half_of_what_is_of_use() {
        // Every third page read ahead is used, and as much is read as the account affords.
        let mut account = Account::new(Amount::pages(64), Amount::pages(1000));
        let (mut demanded, mut used, mut vain) = (0_u64, 0_u64, 0_u64);
        for n in 0..100_000_u64 {
            demanded += 1;
            account.earn(Amount::DEMAND);
            let ahead = account.affords().min(16);
            account.pay(Amount::pages(u64::from(ahead)));
            for _ in 0..ahead {
                if n.wrapping_mul(2_654_435_761) % 3 == 0 {
                    used += 1;
                    account.earn(Amount::back(1, Amount::BONUS_MAX));
                } else {
                    vain += 1;
                }
            }
        }
        assert!(
            vain <= 64 + demanded / 16 + used / 2 + 16,
            "{vain} of {used}"
        );
        assert!(used > 0 && vain > demanded / 100, "it goes on trying");
    }

    #[test]
    fn a_disk_on_which_reading_on_costs_as_much_gives_no_bonus() {
        assert_eq!(Amount::bonus(50_000, 5_000), Amount::BONUS_MAX);
        assert_eq!(Amount::bonus(50_000, 50_000), Amount(0));
        assert_eq!(Amount::bonus(60_000, 40_000), Amount(PAGE / 4));
    }
}
