"""What a worker says of the leases it has beside what our own rows know."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workers", "0008_gpu_forgotten")]
    operations = [
        migrations.AddField(
            model_name="worker",
            name="hold_facts",
            field=models.JSONField(
                blank=True,
                default=dict,
                help_text=(
                    "by lease: kind and gpus of those we do not know, and the reason why a GPU's memory is still held"
                ),
            ),
        ),
    ]
