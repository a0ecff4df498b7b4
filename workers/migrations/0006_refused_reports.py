"""Which fields of a worker's reports are refused as invalid, and since when."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workers", "0005_inventory")]
    operations = [
        migrations.AddField(
            model_name="worker",
            name="refused_since",
            field=models.DateTimeField(
                blank=True, help_text="since when its reports are refused as invalid; empty where they are taken", null=True
            ),
        ),
        migrations.AddField(
            model_name="worker",
            name="refused_errors",
            field=models.JSONField(blank=True, help_text="[[field, sentence]] of the last refused report", null=True),
        ),
    ]
