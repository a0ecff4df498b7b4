"""Storage settings of the two busiest tables: room for HOT updates, and vacuum before a queue's dead rows slow it."""

from django.db import migrations

TABLES = ("jobs_job", "jobs_lease")
SET = "fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.02"
RESET = "fillfactor, autovacuum_vacuum_scale_factor, autovacuum_analyze_scale_factor"


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_initial")]
    operations = [
        migrations.RunSQL(f"ALTER TABLE {table} SET ({SET})", f"ALTER TABLE {table} RESET ({RESET})")
        for table in TABLES
    ]
