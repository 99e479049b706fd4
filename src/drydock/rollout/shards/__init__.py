"""Shards: processes that run a share of a run's rollouts each."""

from drydock.rollout.shards.launch import ShardLaunch, ShardLimits, shares
from drydock.rollout.shards.pool import RolloutShards, ShardedPool
from drydock.rollout.shards.serve import OpenPools, run_shard

__all__ = ["OpenPools", "RolloutShards", "ShardLaunch", "ShardLimits", "ShardedPool", "run_shard", "shares"]
