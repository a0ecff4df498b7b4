"""A claim that takes batch jobs only finds them without walking the services before them; a column nobody wrote goes."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0004_shared_gpus")]
    operations = [
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("blocked_by__isnull", True), ("mode", "batch"), ("state", "queued")),
                fields=["requirement", "seq"],
                name="job_batch_queue_by_class",
            ),
        ),
        migrations.RemoveField(model_name="lease", name="last_hold"),
    ]
