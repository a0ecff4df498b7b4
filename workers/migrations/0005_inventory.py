"""What a worker's last report listed; and room for HOT updates in the two tables that each heartbeat writes."""

from django.db import migrations, models

# Each heartbeat rewrites a worker's row twice and its GPUs' rows once; no index covers what it changes, so with room in
# the page it costs no index entry.
SET = "fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05"
RESET = "fillfactor, autovacuum_vacuum_scale_factor"


class Migration(migrations.Migration):
    dependencies = [("workers", "0004_gpu_readings")]
    operations = [
        migrations.AddField(
            model_name="worker",
            name="inventory",
            field=models.JSONField(
                blank=True,
                help_text="leases that its last report listed; null where its engine did not answer",
                null=True,
            ),
        ),
        *(
            migrations.RunSQL(f"ALTER TABLE {table} SET ({SET})", f"ALTER TABLE {table} RESET ({RESET})")
            for table in ("workers_worker", "workers_gpu")
        ),
    ]
