//! Pools and batches with settings at the ends of their range.

use crate::extreme_values::{COUNTS, DURATIONS, PRIORITIES};
use std::time::Duration;
use tidegate::error::AcquireError;
use tidegate::{Batch, SlotPool, TaskError, timeout_with};

#[tokio::test]
async fn pool_of_any_capacity_refuses_or_works() {
    for capacity in *COUNTS {
        let pool = match SlotPool::new(capacity) {
            Ok(pool) => pool,
            Err(error) => {
                assert_eq!(capacity, 0);
                assert!(error.to_string().contains("capacity of 0"), "{error}");
                continue;
            }
        };
        for weight in *COUNTS {
            assert_eq!(pool.try_acquire(weight).is_ok(), (1..=capacity).contains(&weight));
            for priority in *PRIORITIES {
                match pool.acquire().weight(weight).priority(priority).await {
                    Ok(mut token) => {
                        assert_eq!(pool.in_use(), weight);
                        assert!(token.release());
                        token.reclaim().await.unwrap();
                    }
                    Err(AcquireError::Weight(error)) => {
                        assert!(weight == 0 || weight > capacity);
                        assert!(error.to_string().contains(&weight.to_string()), "{error}");
                    }
                    Err(error) => panic!("{capacity}, {weight}: {error}"),
                }
            }
        }
        let all = pool.acquire().weight(capacity).await.unwrap();
        for resized in *COUNTS {
            assert_eq!(pool.resize(resized).is_ok(), resized > 0);
        }
        pool.resize(u32::MAX).unwrap();
        drop(all);
        assert_eq!((pool.in_use(), pool.available()), (0, u32::MAX));
        assert_eq!(pool.run(async { Ok::<_, TaskError>(7) }).await.unwrap(), 7);
    }
}

#[tokio::test]
async fn batch_with_any_setting_refuses_or_works() {
    let inputs = || ["a", "b"].map(|name| (name, async { Ok::<_, TaskError>(()) }));
    for limit in *COUNTS {
        match Batch::new().parallel_limit(limit).run_all(inputs()).await {
            Ok(results) => assert!(results.is_success(), "{limit}"),
            Err(error) => assert!(limit == 0 && error.to_string().contains("\"0\""), "{error}"),
        }
    }
    for limit in *DURATIONS {
        match Batch::new().task_timeout(limit).run_all(inputs()).await {
            Ok(results) => assert_eq!(results.total, 2, "{limit:?}"),
            Err(error) => assert!(limit.is_zero() && error.to_string().contains("0s"), "{error}"),
        }
        let ended = timeout_with(limit, async { 7 }, || async {}).await;
        assert!(ended.is_ok() || limit <= Duration::from_nanos(1), "{limit:?}");
    }
}
